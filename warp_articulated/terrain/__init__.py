"""Uneven ground: fields of heights, generators, lookups that torch can differentiate, and height scans."""

from .field import Field, scan_points
from .generators import pyramids, rough, slope, stairs, stepping_stones, waves
from .lookup import height_at

__all__ = [
    "Field",
    "height_at",
    "pyramids",
    "rough",
    "scan_points",
    "slope",
    "stairs",
    "stepping_stones",
    "waves",
]
