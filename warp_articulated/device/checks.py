"""Checks of the arguments of the simulator; every error message is a full sentence."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real

import numpy as np
import torch
import warp as wp

from .messages import start_warp

DEVICE_VARIABLE = "WARP_ARTICULATED_DEVICE"  # names the default device, such as cpu


def device(name: str | None) -> wp.Device:
    """The Warp device of that name.

    By default the one that the environment variable names, else the first CUDA device that Warp and torch can both
    use, else the CPU.
    """
    start_warp()
    if name is None:
        name = os.environ.get(DEVICE_VARIABLE) or None
    if name is None:
        return wp.get_device("cuda:0" if wp.is_cuda_available() and torch.cuda.is_available() else "cpu")
    try:
        found = wp.get_device(str(name))
    except Exception:
        known = ", ".join(d.alias for d in wp.get_devices())
        raise ValueError(f"There is no device {str(name)!r} on this machine; the devices are {known}.") from None
    if found.is_cuda and (not torch.cuda.is_available() or found.ordinal >= torch.cuda.device_count()):
        raise ValueError(
            f"Warp has the device {found.alias}, but this PyTorch ({torch.__version__}) cannot use it: install a "
            "PyTorch that was built for the CUDA of this machine's driver, or use device='cpu'."
        )
    return found


def batch(num_envs: int, model, dtype: str) -> None:
    """Refuse batches whose rows are longer than Warp's 32-bit strides can say; they would wrap without an error."""
    row = num_envs * max(model.nq, model.nv, model.nu) * np.dtype(dtype).itemsize
    if row >= 2**31:
        raise ValueError(
            f"num_envs is {num_envs}; the states of one time would take {row / 1e9:.1f} GB, and must take less than "
            "2.1 GB (2**31 bytes): use several simulators with fewer environments."
        )


def positive(name: str, value: float, *, zero: bool = False) -> None:
    kind = "a number of zero or more" if zero else "a number above zero"
    number = isinstance(value, Real) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} is {value!r}; it must be {kind}.")


def whole(name: str, value: int, least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return int(value)


def seed(value: int) -> int:
    if whole("seed", value, 0) >= 1 << 63:
        raise ValueError(f"seed is {value}; it must be below 2**63.")
    return int(value)


def flag(name: str, value: bool) -> bool:
    """Refuses strings, which would all count as true, even "false"."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; it must be True or False.")
    return bool(value)


def interval(name: str, value: int | str, steps: int) -> int:
    """A number of steps, or "sqrt": the root of all steps, rounded up."""
    if value == "sqrt":
        return math.isqrt(max(steps - 1, 0)) + 1
    if isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1, or 'sqrt'.")
    return whole(name, value, 1)


def quaternions(q: torch.Tensor, starts: list[int], names: list[str]) -> None:
    """Refuse quaternions near zero."""
    for start, name in zip(starts, names, strict=True):
        short = torch.linalg.vector_norm(q[:, start : start + 4], dim=-1) < 1e-3
        if bool(short.any()):
            raise ValueError(
                f"q has a quaternion near zero for joint {name!r}, first in environment "
                f"{int(torch.nonzero(short)[0])}; it must have a direction (its length does not matter)."
            )


def state(name: str, value, shape: tuple[int, ...], like: torch.Tensor, finite: bool) -> torch.Tensor:
    """The tensor, contiguous; `like` gives the dtype and device it must have.

    value: a torch tensor, or an array of another library that supports DLPack (numpy, Warp, JAX, CuPy), used without a
        copy if it is contiguous and may be written to.
    shape: -1 means any length.
    """
    is_torch = isinstance(value, torch.Tensor)
    if not is_torch:
        value = _from_dlpack(name, value)
    expected = "(" + ", ".join("T" if n < 0 else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    if value.ndim != len(shape) or any(n >= 0 and n != m for n, m in zip(shape, value.shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(value.shape)}; it must be {expected}.")
    if value.dtype != like.dtype:
        kinds = [str(t.dtype).removeprefix("" if is_torch else "torch.") for t in (value, like)]
        use = f"use {name}.to({like.dtype})" if is_torch else "convert it"
        raise TypeError(f"{name} is {kinds[0]}; this simulator computes in {kinds[1]}: {use}.")
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}; this simulator is on {like.device}: move it there with .to().")
    if finite and not bool(torch.isfinite(value).all()):
        axis = value.ndim - 2
        bad = torch.nonzero(~torch.isfinite(value).all(-1))[0]
        raise ValueError(f"{name} has a number that is not finite, first in environment {int(bad[axis])}.")
    return value.contiguous()


def plain_numpy(value: np.ndarray) -> np.ndarray:
    """The array itself if torch can share its memory, otherwise a copy.

    Torch knows no read-only memory, no strides that are not whole elements and no negative ones: those of a reversed
    array would even end the process.
    """
    shared = value.flags.c_contiguous and value.flags.writeable and value.flags.aligned and value.dtype.isnative
    return value if shared else np.array(value, value.dtype.newbyteorder("="), order="C")


def _from_dlpack(name: str, value) -> torch.Tensor:
    if not hasattr(value, "__dlpack__"):
        raise TypeError(
            f"{name} is a {type(value).__name__}; it must be a torch tensor (torch.as_tensor makes one) or an array "
            "that supports DLPack (numpy, Warp, JAX, CuPy)."
        )
    if isinstance(value, np.ndarray):
        value = plain_numpy(value)
    elif min(getattr(value, "strides", None) or (), default=0) < 0:
        value = value.copy()  # CuPy's reversed arrays
    try:
        return torch.from_dlpack(value)
    except torch.OutOfMemoryError:  # a RuntimeError too, and not the array's fault
        raise
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(f"{name} is a {type(value).__name__} that DLPack cannot pass to torch: {error}.") from None


def warp_array(name: str, value, shape: tuple[int, ...], dtype, device: wp.Device) -> None:
    """Refuse a Warp array that a kernel would read or write beyond its end."""
    if not isinstance(value, wp.array):
        raise TypeError(f"{name} is or holds a {type(value).__name__}; it must be a Warp array.")
    if tuple(value.shape) != shape or value.dtype != dtype or value.device != device:
        raise ValueError(
            f"{name} has an array of shape {tuple(value.shape)}, {value.dtype.__name__}, on {value.device}; "
            f"it must be {shape}, {dtype.__name__}, on {device}."
        )
