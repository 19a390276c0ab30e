"""Shapes as the contact geometry sees them: poses, contact points, and their adjoints."""

from functools import cache

import warp as wp

from ..types import exports, make_arguments


@cache
def make_pose(real):
    a = make_arguments(real)
    vec3, mat33 = a.vec3, a.mat33

    @wp.struct
    class Pose:
        """A shape in world axes, relative to an origin that both shapes of a pair share."""

        x: vec3  # centre
        R: mat33
        size: vec3  # see ShapeType; of a mesh, the corner that is looked at

    @wp.struct
    class PoseBar:
        """Adjoint of a Pose: force at its centre, couple (for R -> exp(phi) R, world axes), size."""

        x: vec3
        phi: vec3
        size: vec3

    @wp.struct
    class PointBar:
        """Adjoint of a contact point."""

        p: vec3
        n: vec3
        z: real

    @wp.func
    def pose_bar(x: vec3, phi: vec3, size: vec3):
        bar = PoseBar()
        bar.x = x
        bar.phi = phi
        bar.size = size
        return bar

    @wp.func
    def radius_bar(r: real):
        """Size gradient of a sphere."""
        return vec3(r, real(0.0), real(0.0))

    return exports(
        pose_bar, radius_bar, real=real, vec3=vec3, mat33=mat33, Pose=Pose, PoseBar=PoseBar, PointBar=PointBar
    )
