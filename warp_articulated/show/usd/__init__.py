"""Trajectories as USD stages, for viewers and for other simulators.

export.py writes a whole trajectory, writer.py a stream of frames. The two layouts are in hierarchy.py (one Xform per
link) and instancer.py (one PointInstancer). Both hold the body frames of the robot's file, as Simulator.link_poses
does. scene.py adds ground, camera and light, physics.py and collision.py the schemas that other tools simulate.
"""

from .export import export_usd
from .writer import UsdWriter

__all__ = ["UsdWriter", "export_usd"]
