"""The standing Laikago as files that other engines read: MJCF, URDF with toes only, and numbers in scene.json.

    python benchmarks/speed/standing_scene.py FOLDER

The robot, its drives and its friction of 1 are those of throughput.py; it has to stand where our own float64
simulation has it after half a second.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import mujoco
import numpy as np

import warp_articulated as wa
from lib import machine, mujoco_twin
from speed.throughput import DT, ITERATIONS, TOLERANCE, scene, targets
from warp_articulated.geometry.kinematics import batch_link_poses
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import Model

SETTLE = 0.5  # s
VARIANTS = 64


def write(folder: Path) -> dict:
    """Writes the files; the content of scene.json."""
    folder.mkdir(parents=True, exist_ok=True)
    model = scene()
    twin = mujoco_twin.twin(model, solver="Newton", dt=DT, iterations=ITERATIONS)
    (folder / "laikago.xml").write_text(mjcf(twin), "utf-8")
    _check_mjcf(twin, mujoco.MjModel.from_xml_path(str(folder / "laikago.xml")))
    (folder / "laikago.urdf").write_text(toes_only(machine.ROOT / "scenes" / "laikago.urdf"), "utf-8")
    facts = numbers(model)
    machine.write_json(folder / "scene.json", facts)
    model.save(folder / "model.npz")
    return facts


def numbers(model: Model) -> dict:
    sim = wa.Simulator(
        model, 1, device="cpu", dtype="float64", dt=DT, iterations=ITERATIONS, tolerance=TOLERANCE, threads=1
    )
    u = sim.initial_control()
    steps = round(SETTLE / DT)
    qs, qds = sim.rollout(*sim.initial_state(), u.expand(steps, -1, -1), checkpoint_every=steps)
    contacts = sim.contacts(qs[-1], qds[-1], u)
    active = contacts.active[0]
    if int(active.sum()) != 4:
        raise SystemExit(f"Our own robot stands on {int(active.sum())} feet: there is nothing to compare with.")
    return {
        "joints": list(model.drive_names), "mass": float(model.mass.sum()), "gravity": model.gravity.tolist(),
        "q0": model.q0.tolist(), "u0": model.u0.tolist(), "kp": float(model.kp[0]), "kd": float(model.kd[0]),
        "effort": float(model.effort[0]), "friction": float(model.pair_friction[0]), "dt": DT,
        "iterations": ITERATIONS, "tolerance": TOLERANCE, "settle_seconds": SETTLE,
        "settled_q": qs[-1, 0].tolist(), "variants": targets(model, VARIANTS).tolist(),
        # an engine without contacts is given the ground's forces
        "foot_points": contacts.points[0][active].tolist(),
        "foot_forces": (contacts.impulses[0][active] / DT).tolist(),
    }  # fmt: skip


def depths(model: Model, q: list[float]) -> np.ndarray:
    """Depth of each foot below the ground, by our own kinematics for any engine's pose. Above: < 0."""
    q = np.array([q])
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7])
    found = []
    origins, quats = batch_link_poses(model, q)
    for shape in {int(s): model.shapes[s] for pair in model.pairs for s in pair}.values():
        if shape.link >= 0:
            centre = origins[0, shape.link] + quat_to_matrix(quats[0, shape.link]) @ shape.pos
            found.append(shape.size[0] - centre[2])
    return np.array(found)


def toes_only(path: Path) -> str:
    """The URDF without visual shapes and with the toes' collision shapes only."""
    tree = ET.parse(path)
    for link in tree.getroot().iter("link"):
        for tag in ("visual",) if link.get("name").endswith("_toe") else ("visual", "collision"):
            for element in link.findall(tag):
                link.remove(element)
    return ET.tostring(tree.getroot(), encoding="unicode")


def mjcf(m: mujoco.MjModel) -> str:
    """A compiled twin as XML: MuJoCo writes only what was read from XML."""
    root = ET.Element("mujoco", model="laikago")
    ET.SubElement(root, "compiler", angle="radian")
    option = {"timestep": m.opt.timestep, "iterations": m.opt.iterations, "gravity": m.opt.gravity}
    ET.SubElement(root, "option", {k: _text(v) for k, v in option.items()}, integrator="Euler", solver="Newton")
    bodies = [ET.SubElement(root, "worldbody")]
    for b in range(1, m.nbody):
        body = ET.SubElement(
            bodies[m.body_parentid[b]],
            "body",
            name=m.body(b).name,
            pos=_text(m.body_pos[b]),
            quat=_text(m.body_quat[b]),
        )
        bodies.append(body)
        ET.SubElement(
            body, "inertial", pos=_text(m.body_ipos[b]), quat=_text(m.body_iquat[b]), mass=_text(m.body_mass[b]),
            diaginertia=_text(m.body_inertia[b]),
        )  # fmt: skip
        for j in range(m.body_jntadr[b], m.body_jntadr[b] + m.body_jntnum[b]):
            if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
                ET.SubElement(body, "freejoint", name=m.joint(j).name)
            else:
                ET.SubElement(
                    body, "joint", name=m.joint(j).name, type="hinge", axis=_text(m.jnt_axis[j]), limited="true",
                    range=_text(m.jnt_range[j]),
                )  # fmt: skip
    for g in range(m.ngeom):
        plane = m.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE
        ET.SubElement(
            bodies[m.geom_bodyid[g]], "geom", name="ground" if plane else f"toe{g}",
            type="plane" if plane else "sphere", size="1 1 1" if plane else _text(m.geom_size[g, :1]),
            pos=_text(m.geom_pos[g]), mass="0", condim="3",
            friction=_text(m.geom_friction[g]), contype=str(int(plane)), conaffinity=str(int(not plane)),
        )  # fmt: skip
    actuators = ET.SubElement(root, "actuator")
    for k in range(m.nu):
        ET.SubElement(
            actuators, "general", name=m.actuator(k).name, joint=m.joint(m.actuator_trnid[k, 0]).name,
            gaintype="fixed", gainprm=_text(m.actuator_gainprm[k, :1]), biastype="affine",
            biasprm=_text(m.actuator_biasprm[k, :3]), forcelimited="true", forcerange=_text(m.actuator_forcerange[k]),
        )  # fmt: skip
    return ET.tostring(root, encoding="unicode")


def _text(values) -> str:
    return " ".join(
        repr(float(v)) if not isinstance(v, (int, np.integer)) else str(v) for v in np.ravel(values).tolist()
    )


def _check_mjcf(a: mujoco.MjModel, b: mujoco.MjModel) -> None:
    """Nothing was lost in the file."""
    names = ("body_mass", "body_inertia", "body_pos", "body_ipos", "jnt_axis", "jnt_range", "dof_damping", "geom_size")
    for name in (*names, "geom_pos", "geom_friction", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange"):
        if not np.allclose(getattr(a, name), getattr(b, name), rtol=0, atol=1e-9):
            raise SystemExit(f"The MJCF file has another {name} than the twin that it was written from.")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
