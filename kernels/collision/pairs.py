"""Contact geometry of all pairs of shapes that can touch: pose and size in, contact point out; and the adjoints.

In a pair (a, b) the lower ShapeType stands first. A contact is p (point, world axes, any origin), n (unit normal from
b to a) and z (gap, negative: penetration). A candidate is one of the points that a pair can make:
    mode    = <pair>_mode(xa, Ra, sa, xb, Rb, sb)      what had to be searched; -1: apart. Only for the pairs capsule-
                                                       capsule, capsule-box and box-box; the others have no mode.
    p, n, z = <pair>_point(feature, ...)               feature = 16 mode + candidate; z > 0 if there is no such point
    <pair>_point_adjoint(feature, ..., p_bar, n_bar, z_bar)
The adjoint takes the branches that `feature` names, so it cannot disagree with the forward step. It returns, for each
shape, the force at its centre x, the couple phi (gradient for R -> exp(phi) R, world axes) and the size gradient.
Spheres are given by centre and radius, planes by a point and their normal.
"""

from types import SimpleNamespace

from .box import make_collision_box
from .boxbox import make_collision_boxbox
from .plane import make_collision_plane
from .round import make_collision_round


def make_collision(t):
    plane = vars(make_collision_plane(t))
    rounded = vars(make_collision_round(t))
    box = vars(make_collision_box(t))
    boxes = vars(make_collision_boxbox(t))
    return SimpleNamespace(**(plane | rounded | box | boxes))
