"""States and gradients of the scenes are those recorded before the kernels were restructured (helpers/recorder.py).

The reference was recorded at commit 61d6bfb. A change that is meant to alter results writes a new one, with
`python tests/helpers/recorder.py out.npz --digest`, and says why.
"""

import json

import numpy as np
import pytest
import recorder

import warp_articulated as wa
from warp_articulated.device.parameters import GROUPS

QUICK = "laikago_feet"  # its kernels are compiled for many other tests
# Relative to the largest entry times the root of the number of entries, which a random projection averages over.
# The restructuring changed the order of some additions and moved them by 7e-12 (boxes3, a stack) and 6e-4 (box, whose
# gradient by friction is a difference of equal numbers) at most.
# Another processor fuses other multiplications: in float32 laikago_feet's gradient by friction then differs by 1.01e-2,
# on a Xeon, with the kernels of before loops and fields as well as after.
TOLERANCE = {"float64": 1e-10, "float32": 2e-2}
NEWER = ("limit_restitution", "heights", "terrain_origin", *GROUPS["ties"])  # parameters that came after the record


def check(scene, precision, with_queries):
    expected = json.loads(recorder.DIGEST.read_text())
    arrays = recorder.record(scene, precision, with_queries)
    arrays = {name: array for name, array in arrays.items() if not any(new in name for new in NEWER)}
    known = {name for name in expected if name.startswith(f"{scene}/{precision}/")}
    assert set(arrays) == known if with_queries else set(arrays) < known
    errors = {}
    for name, array in arrays.items():
        projection, largest = recorder.digest(array)
        scale = max(expected[name][1], 1e-12) * np.sqrt(max(array.size, 1))
        errors[name] = max(abs(projection - expected[name][0]), abs(largest - expected[name][1])) / scale
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE[precision]}
    assert not wrong, wrong


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_recorded_states_and_gradients_have_not_changed(precision):
    check(QUICK, precision, with_queries=False)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("scene", wa.scene_names())
def test_recorded_states_gradients_and_queries_of_every_scene_have_not_changed(scene, precision, own_kernels):
    check(scene, precision, with_queries=True)
