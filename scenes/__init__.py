"""Robots (URDF) and scenes (JSON) as data; docs/scenes.md describes the format."""
