"""The benchmark of USD exports runs, and refuses a file that does not hold the poses. No timing is asserted."""

import pytest
from every_joint import machine

from output import usd_export, usd_newton


@pytest.mark.slow
def test_benchmark_measures_both_layouts(tmp_path):
    results = usd_export.main(["--quick", "--out", str(tmp_path / "usd.json")])
    assert {r["layout"] for r in results["exports"].values()} == {"hierarchy", "instancer"}
    assert all(r["megabytes"] > 0 and r["memory_peak_mb"] > 0 for r in results["exports"].values())
    assert {p.name for p in tmp_path.iterdir()} == {"usd.json", "usd.png"}


def test_another_model_in_newton_is_noticed():
    model = machine()
    with pytest.raises(SystemExit, match="which are not ours"):
        usd_newton._compare("machine", model, {"bodies": {"/World/env_0/tower": {}}}, model.q0[None])
