"""The browser viewer: `Viewer` and `record_html` (extra `viewer`). The code is in show/viewer."""

from .show.viewer import Viewer, record_html

__all__ = ["Viewer", "record_html"]
