"""What is different on CUDA: streams, torch's current device, memory, and graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import warp as wp

OUT_OF_MEMORY = ("out of memory", "memory allocation", "out_of_memory", "error 2:")


class TorchStream:
    """A stream of torch for `wp.Launch.launch`, which reads nothing but the handle.

    A `wp.Stream` would register the handle with Warp and, when it is collected, erase it there: captures on that
    stream fail from then on.
    """

    def __init__(self, handle: int):
        self.cuda_stream = handle


def stream(device: wp.Device):
    """The stream that torch uses now on the device; Warp's own object where it is the same stream."""
    handle = torch.cuda.current_stream(device.ordinal).cuda_stream
    own = device.stream
    return own if (own.cuda_stream or 0) == (handle or 0) else TorchStream(handle)


def current(device: wp.Device) -> AbstractContextManager:
    """Torch's current device within; afterwards the one before, which Warp does not restore."""
    return torch.cuda.device(device.ordinal) if device.is_cuda else nullcontext()


def on_warp_stream(device: wp.Device) -> AbstractContextManager:
    """Torch and our kernels use Warp's stream within: for functions of Warp arrays, which are made on that stream."""
    return torch.cuda.stream(wp.stream_to_torch(device)) if device.is_cuda else nullcontext()


def launch(command: wp.Launch, device: wp.Device) -> None:
    """Queue a recorded launch on torch's stream.

    A first launch reserves a stack for every thread that the GPU can hold, from memory that torch may be keeping for
    later; so a launch that finds none is tried again when torch has given that back.
    """
    try:
        command.launch(stream=stream(device))
        return
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        if torch.cuda.is_current_stream_capturing():  # the cache cannot be emptied while a graph is captured
            raise RuntimeError(no_memory(command, device, error)) from error
    torch.cuda.empty_cache()
    try:
        command.launch(stream=stream(device))
    except RuntimeError as error:
        raise RuntimeError(no_memory(command, device, error)) from error


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return any(words in text for words in OUT_OF_MEMORY)


def no_memory(command: wp.Launch, device: wp.Device, error: BaseException) -> str:
    """What failed and what to do. Kernels without a name are those of a test."""
    name = getattr(getattr(command, "kernel", None), "key", "a kernel")
    return (
        f"There is not enough memory on {device.alias} to launch {name}: {error}. The first launch of a kernel "
        "reserves a stack for all threads that the GPU can hold at once, whatever the number of environments. Free "
        "memory of other programs or tensors, or make the stack smaller: Simulator(max_contacts=...) with fewer "
        "contacts, fewer iterations for gradients, or float32."
    )


def require(device: torch.device, what: str) -> None:
    """Refuse what only CUDA can do."""
    if torch.device(device).type != "cuda":
        raise RuntimeError(
            f"{what} needs a CUDA device, but this simulator is on {device}; make it with device='cuda:0', or call "
            "step itself, which costs the CPU nothing extra."
        )


def capture(device: torch.device, body: Callable[[], None], warm_ups: int) -> Callable[[], None]:
    """Record what `body` launches as a CUDA graph; returns the function that replays it.

    The body runs before, because kernels are compiled and loaded, and their stacks reserved, by their first launch,
    which a graph cannot hold.
    """
    with torch.cuda.device(device):
        side, before = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        side.wait_stream(before)
        with torch.cuda.stream(side):
            for _ in range(warm_ups):
                body()
        before.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
    return graph.replay
