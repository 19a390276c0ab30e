"""A file that anyone may have changed is refused with a ModelError, or gives a model that can be simulated.

Files are damaged by tests/helpers/damage.py. All are loaded and printed. A fixed share of the models that load is also
simulated for ten steps and saved and loaded again: those whose seed is a multiple of SIMULATED, if a kernel that all
tests share has room for them, because compiling one for each would take minutes.
"""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from damage import SUFFIX, Damage
from shared_kernels import CLASSES, EVERYTHING, fits, shared_sizes

import warp_articulated as wa
from warp_articulated.device import engine
from warp_articulated.device.topology import default_contacts

QUICK, THOROUGH = 100, 1700  # of each of the six kinds
SIMULATED = 2
STEPS = 10


@pytest.fixture(scope="module")
def damage(tmp_path_factory):
    return Damage(tmp_path_factory.mktemp("damaged"))


def check(damage: Damage, kind: str, seed: int) -> str:
    """Load one file; returns what came of it."""
    path = damage.write(kind, seed)
    try:
        model = wa.Trajectory.load(path).model if kind == "trajectory" else wa.load(path)
    except wa.ModelError as error:
        assert len(str(error)) > 20, error
        path.unlink()
        return "refused"
    str(model).encode()
    done = "loaded"
    if seed % SIMULATED == 0:
        saved = damage.folder / "saved.npz"
        model.save(saved)
        assert str(wa.load(saved)) == str(model)
        own = shared_sizes(model, default_contacts(model))
        plain = not (own.gravcomp or own.thrusts or own.lopsided)  # others would have kernels of their own
        if own in CLASSES or (plain and fits(own, EVERYTHING)):
            with patch.object(engine, "sizes_of", lambda *_, **__: own if own in CLASSES else EVERYTHING):
                simulate(model)
            done = "simulated"
    path.unlink()  # only the file of a failure stays, also of one that ends the process
    return done


def simulate(model: wa.Model) -> None:
    """An environment that diverges is stopped where it was, so its state is finite too."""
    sim = wa.Simulator(model, num_envs=2)
    qs, qds = sim.rollout(*sim.initial_state(), sim.initial_control().repeat(STEPS, 1, 1))
    assert np.isfinite(qs.numpy()).all() and np.isfinite(qds.numpy()).all()


def check_all(damage: Damage, kind: str, seeds: range) -> None:
    found = {"refused": 0, "loaded": 0, "simulated": 0}
    failures = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MJCF features that are left out, environments that diverge
            try:
                found[check(damage, kind, seed)] += 1
            except Exception as error:
                failures.append(f"{kind} {seed}: {type(error).__name__}: {str(error)[:200]}")
    assert not failures, f"{len(failures)} of {len(seeds)} files, in {damage.folder}:\n" + "\n".join(failures[:20])
    # the damage is neither so small that nothing is refused, nor so large that nothing else is tested
    assert found["refused"] > 0.2 * len(seeds) and found["loaded"] + found["simulated"] > 0.1 * len(seeds), found
    assert found["simulated"] > 0.01 * len(seeds), found


@pytest.mark.parametrize("kind", SUFFIX)
def test_damaged_files_are_refused_or_can_be_simulated(damage, kind):
    check_all(damage, kind, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUFFIX)
def test_ten_thousand_damaged_files_are_refused_or_can_be_simulated(damage, kind):
    check_all(damage, kind, range(QUICK, THOROUGH + QUICK))
