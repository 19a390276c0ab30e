"""The browser viewer and its HTML recordings, from viser (extra `viewer`).

Nothing else in the package imports this, so that everything else works without viser.
"""

try:
    import viser as _viser
except ModuleNotFoundError as error:
    if error.name != "viser":  # viser is installed, but one of its dependencies is not
        raise
    raise ModuleNotFoundError("the viewer needs viser: pip install viser.", name="viser") from None

from .recording import record_html
from .viewer import Viewer

__all__ = ["Viewer", "record_html"]
del _viser
