"""Robots (URDF) and scenes (JSON) as data; warp_articulated.scenes' format is described in docs/scenes.md."""
