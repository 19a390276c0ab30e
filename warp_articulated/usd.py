"""USD export: `UsdWriter` and `export_usd`. The code is in show/usd."""

from .show.usd import UsdWriter, export_usd

__all__ = ["UsdWriter", "export_usd"]
