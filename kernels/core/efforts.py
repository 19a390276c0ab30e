"""The range of a drive's force: `effort_limit` both ways from a middle, which is zero unless the limits differ."""

import warp as wp

from ..types import exports


def make_efforts(t, s):
    real, Env, clip = t.real, t.Env, s.clip

    @wp.func
    def excess(e: wp.ref[Env], k: int, force: real):
        """A drive's force from the middle of its range, which is zero unless its limits differ."""
        x = force
        if wp.static(t.sizes.lopsided):
            x -= e.model.effort_center[k]
        return x

    @wp.func
    def within_effort(e: wp.ref[Env], k: int, force: real):
        """A drive's force within its limits."""
        x = clip(excess(e, k, force), e.params.effort_limit[e.index, k])
        if wp.static(t.sizes.lopsided):
            x += e.model.effort_center[k]
        return x

    return exports(excess, within_effort)
