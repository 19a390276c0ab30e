"""Newton reads the physics of exported files: is what it simulates our model? Part of usd_export.py.

Newton has its own dependencies, so it may be in another Python:
    python -m venv newton && newton/bin/pip install newton newton-usd-schemas usd-core scipy
    python benchmarks/output/usd_export.py --newton-python newton/bin/python
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import warp_articulated as wa
from lib import machine
from warp_articulated.geometry.kinematics import batch_body_poses
from warp_articulated.model import NQ, WORLD, JointType, Model
from warp_articulated.show.layout import grid_offsets
from warp_articulated.show.usd.shapes import prim_names

sys.path.insert(0, str(machine.ROOT / "tests" / "helpers"))
from every_joint import machine as every_joint

SCENES = ("laikago_feet", "ant", "panda_throw", "golf", "cartpole", "boxes3")
SPACING = 5.0
TYPES = {"FREE": "FREE", "REVOLUTE": "REVOLUTE", "PRISMATIC": "PRISMATIC", "BALL": "SPHERICAL"}
UNLIMITED = 1e9  # Newton writes 1e10 for no limit

PROBE = """
import json, sys
import newton, numpy as np
b = newton.ModelBuilder()
b.add_usd(sys.argv[1])
request = json.load(open(sys.argv[2]))
joints = {}
for j in range(b.joint_count):
    start, first = b.joint_q_start[j], b.joint_qd_start[j]
    child = b.body_label[b.joint_child[j]]
    b.joint_q[start:start + len(request[child])] = request[child]
    joints[child] = {
        "type": newton.JointType(b.joint_type[j]).name,
        "parent": b.body_label[b.joint_parent[j]] if b.joint_parent[j] >= 0 else None,
        "lower": float(b.joint_limit_lower[first]), "upper": float(b.joint_limit_upper[first]),
        "armature": float(b.joint_armature[first]), "kp": float(b.joint_target_ke[first]),
        "kd": float(b.joint_target_kd[first]),
    }
model = b.finalize(device="cpu")
state = model.state()
newton.eval_fk(model, model.joint_q, model.joint_qd, state)
poses = state.body_q.numpy()
bodies = {
    label: {"mass": float(b.body_mass[i]), "com": [float(x) for x in b.body_com[i]],
            "inertia": np.array(b.body_inertia[i]).reshape(3, 3).tolist(), "pose": poses[i].tolist()}
    for i, label in enumerate(b.body_label)
}
print("\\n" + json.dumps({"version": newton.__version__, "gravity": [float(x) for x in np.ravel(b.gravity)],
                         "bodies": bodies, "joints": joints}))
"""


def check(python: str, folder: Path) -> dict | None:
    """Largest differences between Newton's model and ours, per robot; None if that Python has no Newton.

    Raises SystemExit if Newton finds other bodies or joints, or numbers that differ by more than single precision.
    """
    if subprocess.run([python, "-c", "import newton, newton_usd_schemas"], capture_output=True).returncode:
        return None
    models = {name: wa.load(name) for name in SCENES} | {"every joint": every_joint()}
    results: dict = {}
    for name, model in models.items():
        machine.progress(f"Newton reads {name}")
        found, q = _newton(python, folder, model)
        results["version"] = found["version"]
        results[name] = _compare(name, model, found, q)
    return results


def _newton(python: str, folder: Path, model: Model) -> tuple[dict, np.ndarray]:
    """Newton's reading of two environments of the model, and the positions q (2, nq) of its poses."""
    q = model.q0 + 0.1 * np.random.default_rng(0).normal(size=(2, model.nq))
    offsets, names = grid_offsets(2, SPACING), prim_names(model.link_names, ("world", "joints"))
    request = {}
    for env in range(2):
        for i, name in enumerate(names):
            at, kind = int(model.q_start[i]), JointType(model.joint_type[i])
            values = q[env, at : at + NQ[kind]]
            if kind in (JointType.FREE, JointType.SPHERICAL):
                values[-4:] /= np.linalg.norm(values[-4:])
            request[f"/World/env_{env}/{name}"] = values.tolist()
    origins, quats = batch_body_poses(model, q)
    for env in range(2):  # Newton's free joints hold the pose of the prim
        for i in np.flatnonzero(model.joint_type == JointType.FREE):
            request[f"/World/env_{env}/{names[i]}"] = [*(origins[env, i] + offsets[env]), *quats[env, i]]
    wa.export_usd(folder / "newton.usda", model, q[None], spacing=SPACING)
    (folder / "request.json").write_text(json.dumps(request))
    command = [python, "-c", PROBE, str(folder / "newton.usda"), str(folder / "request.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Newton could not read {model.name}:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1]), q


def _compare(name: str, model: Model, found: dict, q: np.ndarray) -> dict[str, float]:
    names = prim_names(model.link_names, ("world", "joints"))
    labels = [[f"/World/env_{env}/{link}" for link in names] for env in range(2)]
    if set(found["bodies"]) != {label for env in labels for label in env}:
        raise SystemExit(f"{name}: Newton found the bodies {sorted(found['bodies'])}, which are not ours.")
    origins, quats = batch_body_poses(model, q)
    worst = {"gravity": float(np.abs(np.subtract(found["gravity"][-3:], model.gravity)).max())}

    def differ(key: str, theirs, ours, scale: float = 1.0) -> None:
        worst[key] = max(worst.get(key, 0.0), float(np.abs(np.subtract(theirs, ours)).max()) / scale)

    for env in range(2):
        for i, label in enumerate(labels[env]):
            body, joint = found["bodies"][label], found["joints"][label]
            kind, parent, dof = JointType(model.joint_type[i]), int(model.parent[i]), int(model.v_start[i])
            if TYPES.get(joint["type"]) != kind.name or joint["parent"] != (
                None if parent == WORLD else labels[env][parent]
            ):
                raise SystemExit(f"{name}: Newton hangs {label} on a joint {joint}, ours is {kind.name}.")
            differ("mass", body["mass"], model.mass[i])
            differ("com", body["com"], model.com[i] - model.frame_pos[i])
            differ("inertia", body["inertia"], model.inertia[i], max(float(np.abs(model.inertia[i]).max()), 1e-9))
            differ("position", body["pose"][:3], origins[env, i] + grid_offsets(2, SPACING)[env])
            turn = np.array(body["pose"][3:])
            differ("orientation", turn * np.sign(turn @ quats[env, i]), quats[env, i])  # q and -q are the same
            if kind in (JointType.REVOLUTE, JointType.PRISMATIC):
                differ("armature", joint["armature"], model.armature[dof])
                for side, limit in (("lower", model.lower[dof]), ("upper", model.upper[dof])):
                    if np.isfinite(limit) or abs(joint[side]) < UNLIMITED:
                        differ("limits", joint[side], limit)
                drives = model.drive_dof == dof
                differ("stiffness", joint["kp"], model.kp[drives].sum() + model.stiffness[dof], 100.0)
                differ("damping", joint["kd"], model.kd[drives].sum() + model.damping[dof], 100.0)
    wrong = {key: value for key, value in worst.items() if not value < 1e-5}
    if wrong:
        raise SystemExit(f"{name}: Newton's model is not ours; largest differences {wrong}.")
    return worst
