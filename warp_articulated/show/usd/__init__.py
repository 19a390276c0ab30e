"""Trajectories as USD stages, for viewers and for other simulators.

export.py writes a whole trajectory, writer.py a stream of frames. The two layouts are in hierarchy.py (one Xform per
link) and instancer.py (one PointInstancer); both hold the frames that the robot's file gave its bodies, the same as
Simulator.link_poses. scene.py has what surrounds the robots, physics.py and collision.py what other tools simulate.
"""

from .export import export_usd
from .writer import UsdWriter

__all__ = ["UsdWriter", "export_usd"]
