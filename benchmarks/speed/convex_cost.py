"""What a general convex pair costs: search and points, in us of CPU time per pair, float32.

    python benchmarks/speed/convex_cost.py          writes benchmarks/results/convex_cost.json

Shapes: hulls of 64 vertices on an ellipsoid, boxes, and cylinders (prisms of 24 sides). States: apart, but with
bounding spheres that meet; overlapping by 1 % of the size in random directions; and resting face on face.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import warp as wp
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.convex import make_convex
from warp_articulated.kernels.rollout import KERNEL, module_options
from warp_articulated.kernels.types import make_arguments

from lib import machine
from warp_articulated.device.structs import hulls_struct
from warp_articulated.model import Shape, ShapeType
from warp_articulated.model.polytopes import polytope_of

RESULT = Path(__file__).resolve().parents[1] / "results" / "convex_cost.json"
COUNT, RUNS = 500, 60
real = wp.float32
t, c = make_arguments(real), make_convex(real)


@wp.kernel(**KERNEL, module_options=module_options())
def collide(
    hulls: t.Hulls, kinds: wp.vec2i, x: wp.array2d(dtype=t.vec3), R: wp.array2d(dtype=t.mat33), size: t.vec3,
    corners: wp.array(dtype=c.Corner), facets: wp.array(dtype=c.Facet), rim: wp.array(dtype=int),
    spots: wp.array(dtype=c.Spot), features: wp.array(dtype=int), count: wp.array(dtype=int), z: wp.array(dtype=real),
):  # fmt: skip
    i = wp.tid()
    h = hulls
    search = c.Search()
    search.corners = corners
    search.facets = facets
    search.rim = rim
    search.spots = spots
    search.features = features
    pose = c.Pose()
    pose.x = x[0, i]
    pose.R = R[0, i]
    pose.size = size
    a = c.solid(h, 0, kinds[0], pose)
    pose.x = x[1, i]
    pose.R = R[1, i]
    b = c.solid(h, 1, kinds[1], pose)
    found, _n, _gap = c.search_pair(h, search, a, b, real(0.0))
    least = real(1.0)
    for k in range(found):
        _p, _m, depth = c.point(h, features[k], a, b)
        least = wp.min(least, depth)
    count[i] = found
    z[i] = least


def ellipsoid(rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(size=(64, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * [0.3, 0.25, 0.2]


def place(hulls, scales, state: str, rng: np.random.Generator, touching) -> tuple[np.ndarray, np.ndarray]:
    """Positions and rotations of both shapes for a state."""
    R = np.stack([Rotation.random(COUNT, random_state=rng).as_matrix() for _ in "ab"])
    if state == "resting":
        R = np.stack([Rotation.from_euler("z", rng.uniform(0, 6.28, (COUNT, 1))).as_matrix() for _ in "ab"])
    direction = rng.normal(size=(COUNT, 3))
    if state == "resting":
        direction = np.broadcast_to([0.0, 0.0, 1.0], (COUNT, 3))
    direction = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    a, b = (np.einsum("nij,vj->nvi", R[k], hulls[k].vertices * scales[k]) for k in (0, 1))
    reach = np.einsum("nvi,ni->nv", a, -direction).max(1) + np.einsum("nvi,ni->nv", b, direction).max(1)
    if state == "overlapping":
        # the exact depth is found by halving: the largest shift at which the shapes still overlap, less 1 %
        low, high = np.zeros(COUNT), np.ones(COUNT)
        for _ in range(20):
            share = (low + high) / 2
            hit = touching(np.stack([direction * (share * reach)[:, None], np.zeros((COUNT, 3))]), R)
            low, high = np.where(hit, share, low), np.where(hit, high, share)
        return np.stack([direction * ((low - 0.01) * reach)[:, None], np.zeros((COUNT, 3))]), R
    share = {"apart": 1.02, "resting": 0.995}[state]
    return np.stack([direction * (share * reach)[:, None], np.zeros((COUNT, 3))]), R


def measure(kinds: tuple[ShapeType, ShapeType], state: str) -> dict:
    rng = np.random.default_rng(0)
    size = np.array([0.25, 0.25, 0.25])
    shapes = [Shape(kind, 0, size, vertices=ellipsoid(rng) if kind == ShapeType.MESH else None) for kind in kinds]
    hulls = [polytope_of(shape) for shape in shapes]
    scales = [np.ones(3) if kind == ShapeType.MESH else size for kind in kinds]

    def array(values, dtype):
        return wp.array(np.ascontiguousarray(values), dtype=dtype)

    table, count, z = hulls_struct(t, hulls, array), wp.zeros(COUNT, dtype=int), wp.zeros(COUNT, dtype=real)
    memory = [
        wp.zeros(c.CORNERS, dtype=c.Corner), wp.zeros(c.FACETS, dtype=c.Facet), wp.zeros(2 * c.FACETS, dtype=int),
        wp.zeros(c.SPOTS, dtype=c.Spot), wp.zeros(4, dtype=int),
    ]  # fmt: skip

    def inputs(x, R):
        poses = [array(x, t.vec3), array(R, t.mat33), t.vec3(*size)]
        return [table, wp.vec2i(*map(int, kinds)), *poses, *memory, count, z]

    def touching(x, R):
        wp.launch(collide, COUNT, inputs(x, R), device="cpu")
        return count.numpy() > 0

    placed = inputs(*place(hulls, scales, state, rng, touching))
    times = []
    for _ in range(RUNS):
        start = time.thread_time()
        wp.launch(collide, COUNT, placed, device="cpu")
        times.append(time.thread_time() - start)
    found = count.numpy()
    assert np.isfinite(z.numpy()).all()
    return {
        "pair": "-".join(kind.name.lower() for kind in kinds), "state": state,
        "us": round(1e6 * min(times) / COUNT, 2), "touching": float((found > 0).mean()), "points": float(found.mean()),
    }  # fmt: skip


def main() -> None:
    mesh, box, cylinder = ShapeType.MESH, ShapeType.BOX, ShapeType.CYLINDER
    cases = [((mesh, mesh), state) for state in ("apart", "overlapping")]
    cases += [((box, mesh), state) for state in ("apart", "overlapping")]
    cases += [
        (kinds, state)
        for kinds in ((box, cylinder), (cylinder, cylinder))
        for state in ("apart", "overlapping", "resting")
    ]
    rows = [measure(kinds, state) for kinds, state in cases]
    for row in rows:
        print(f"{row['pair']:20} {row['state']:12} {row['us']:6.2f} us  {row['points']:.2f} points")
    RESULT.write_text(json.dumps({"machine": machine.describe(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
