"""Keep torch.compile out of the simulator: there is nothing in it that it could compile."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable


def eager(method: Callable) -> Callable:
    """A method that torch.compile calls instead of tracing it.

    torch.compiler.disable does that too, but loads the compiler at once, which takes longer than loading the rest.
    """
    disabled: list[Callable] = []

    @functools.wraps(method)
    def call(*args, **options):
        if "torch._dynamo" not in sys.modules:
            return method(*args, **options)
        if not disabled:
            import torch

            disabled.append(torch.compiler.disable(method))
        return disabled[0](*args, **options)

    return call
