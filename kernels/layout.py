"""Where the parts of an environment's working memory lie in the one local vector that holds it."""

import ctypes

import warp as wp


def layout(real, parts: dict, *turns: dict, last: dict | None = None):
    """A local vector type with room for all parts ({name: (type, count)}), and the byte at which each starts.

    turns: groups of parts that take turns in one place, as no part of one is needed together with a part of another.
    Behind them come the parts of `last`.

    Kernels declare such a vector by `while False: memory = Memory()`. If that were executed, NVRTC would make the value
    in a temporary and copy it, which from 8 KB on doubles the stack and takes 100,000 instructions per launch.
    """
    scalar = ctypes.sizeof(real._type_)
    at = {}

    def place(parts: dict, end: int) -> int:
        for name, (dtype, count) in parts.items():
            at[name] = wp.constant(wp.uint64(end))
            numbers = dtype._type_ if dtype in (real, wp.int32) else getattr(dtype, "ctype", dtype)
            size = ctypes.sizeof(numbers)
            end += -(-count * size // (4 * scalar)) * 4 * scalar
        return end

    start = place(parts, 0)
    end = max([start, *(place(turn, start) for turn in turns)])
    end = place(last or {}, end)
    return wp.types.vector(length=end // scalar, dtype=real), at
