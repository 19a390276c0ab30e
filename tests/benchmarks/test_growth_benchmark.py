"""The benchmark of how cost grows: its models, what it refuses, and the exponents that it reports. No timing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lib import reporting
from speed import growth, growth_report, scaling
from warp_articulated.geometry.kinematics import batch_body_poses

LAIKAGO = growth.Case("steps", "laikago", 4, "laikago", 2, 4)


def test_chains_have_as_many_links_as_asked_for():
    model = scaling.chain(40)
    assert (model.num_links, model.nq, model.nv, len(model.pairs)) == (40, 40, 40, 0)


@pytest.mark.parametrize("scene", ["feet", "balls", "snake"])
@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_every_sphere_rests_on_the_floor(scene, count):
    model = getattr(scaling, scene)(count)
    assert len(model.pairs) == count and model.mass.sum() == pytest.approx(scaling.LOAD * count)
    places, quats = batch_body_poses(model, model.q0[None])
    np.testing.assert_allclose(quats[0, :, 3], 1.0)  # upright, so a sphere's place in its link adds up
    heights = [places[0, s.link, 2] + s.pos[2] - s.size[0] for s in model.shapes[:-1]]
    np.testing.assert_allclose(heights, -scaling.DEPTH, rtol=1e-9)


def test_quick_plan_needs_few_kernels_and_the_full_one_all_kinds():
    quick, full = growth.cases(growth.QUICK), growth.cases(growth.Plan())
    assert {c.family for c in quick} == {c.family for c in full} == set(growth_report.FAMILIES)
    assert len({(c.scene, c.size) for c in quick if c.scene != "laikago"}) <= 6
    assert {c.scene for c in full} == {"laikago", "chain", "feet", "balls", "snake"}


@pytest.fixture(scope="module")
def run():
    made = growth.Run(LAIKAGO)
    made.time()
    return made


def test_a_case_is_timed_and_checked(run):
    row = run.row()
    assert row["contacts"] == 4 and row["carried"] == pytest.approx(1.0, abs=0.05)
    assert row["forward_us"] > 0 and row["backward_us"] > 0 and len(row["forward_s"]) == 1


def test_another_number_of_contacts_is_refused(run, monkeypatch):
    monkeypatch.setattr(growth.Case, "contacts", 5)
    with pytest.raises(SystemExit, match=r"No figures: steps, laikago, 4: .* with \[4\] contacts, not 5"):
        run.check()


def test_sweeps_that_were_not_made_are_refused(run, monkeypatch):
    monkeypatch.setattr(run, "case", replace(LAIKAGO, iterations=49))
    with pytest.raises(SystemExit, match="made \\[50\\] sweeps, not 49"):
        run.check()


def test_a_fallen_robot_is_refused(run, monkeypatch):
    q, qd = run.last
    lying = q.clone()
    lying[1, 2] -= 0.2
    monkeypatch.setattr(run, "last", (lying, qd))
    with pytest.raises(SystemExit, match="a robot fell"):
        run.check()


def results_with(exponents):
    """As growth.py writes them; forward cost is size^exponent, backward twice that, per environment step."""
    rows = []
    for (family, series), exponent in exponents.items():
        for n in (10, 100, 1000, 10000):
            cost = 3.0 * n ** (exponent - 1.0 if family in ("environments", "steps") else exponent)
            facts = {"family": family, "series": series, "size": n, "batch": 8, "steps": 4, "threads": 1}
            rows.append(facts | {"forward_us": cost, "backward_us": 2 * cost})
    memory = [
        {
            "family": family,
            "series": "memory",
            "size": n,
            "batch": 8,
            "steps": 4,
            "memory_mb": 0.5 * n,
            "states_mb": 0.1,
        }
        for family in ("environments", "steps")
        for n in (100, 1000)
    ]
    return json.loads(json.dumps({"rows": rows, "memory": memory}))


EXPONENTS = {
    ("environments", "1 thread"): 0.9, ("environments", "2 threads"): 0.8, ("links", "chain"): 1.1,
    ("contacts", "feet"): 1.9, ("iterations", "laikago"): 0.6, ("steps", "laikago"): 1.0,
}  # fmt: skip


def test_exponents_are_those_of_the_rows():
    text = growth.report(results_with(EXPONENTS))
    assert set(text) == {"environments", "links", "contacts", "iterations", "steps", "summary", "headline"}
    for (family, series), exponent in EXPONENTS.items():
        name = growth_report.SCENES.get(series, series)
        assert f"| {family} | {name} | forward | 10 to 10,000 | {exponent:.2f} | {exponent:.2f} |" in text["summary"]
    assert "environments 0.90 and 0.90, links 1.10 and 1.10, contacts 1.90 and 1.90" in text["headline"]
    assert "| steps | Laikago | memory | 100 to 1,000 | 1.00 | 1.00 |" in text["summary"]


def test_a_bent_curve_has_the_exponent_of_its_larger_sizes():
    sizes = [1, 2, 4, 8, 16, 32, 64]
    curve = growth_report.Curve("contacts", "feet", "forward", sizes, [20.0 + n**2 for n in sizes])
    assert curve.exponent < 1.5 < curve.tail < 2.0


def test_curves_are_drawn(tmp_path):
    reporting.draw(results_with(EXPONENTS), growth.plot, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.mark.slow
def test_quick_run_measures_all_that_grows(tmp_path):
    results = growth.main(["--quick", "--out", str(tmp_path / "growth.json")])
    assert {r["family"] for r in results["rows"]} == set(growth_report.FAMILIES)
    touching = [r for r in results["rows"] if r["family"] == "contacts"]
    assert [r["contacts"] for r in touching] == [r["size"] for r in touching] == [4, 16, 64]
    assert (tmp_path / "growth.png").exists()
