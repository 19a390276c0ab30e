"""Readers of robots and scenes: URDF, MJCF, scene files, and several of them combined. `loading.load` is the door."""
