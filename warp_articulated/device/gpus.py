"""GPUs: what counts for the memory of stacks, of a device that is here, or of a well-known one that need not be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import warp as wp

GB = 10**9
# Threads that a multiprocessor can hold at once, by compute capability: CUDA programming guide
THREADS = {75: 1024, 80: 2048, 86: 1536, 87: 1536, 89: 1536, 90: 2048, 120: 1536}


@dataclass(frozen=True)
class Gpu:
    name: str
    multiprocessors: int
    threads: int  # resident at once on a multiprocessor, at most
    memory: int  # bytes
    arch: int  # compute capability, such as 90 for 9.0

    @property
    def resident(self) -> int:
        """Threads that the whole GPU could hold at once."""
        return self.multiprocessors * self.threads


def _known(name: str, multiprocessors: int, gigabytes: int, arch: int) -> Gpu:
    # A product's GB are 2**30 bytes, of which error correction and the driver take a part; 10**9 are left.
    return Gpu(name, multiprocessors, THREADS[arch], gigabytes * GB, arch)


GPUS = (  # NVIDIA's published specifications
    _known("A100 40 GB", 108, 40, 80),
    _known("A100 80 GB", 108, 80, 80),
    _known("H100 SXM", 132, 80, 90),
    _known("H100 PCIe", 114, 80, 90),
    _known("L4", 58, 24, 89),
    _known("L40S", 142, 48, 89),
    _known("RTX 3060", 28, 12, 86),
    _known("RTX 3090", 82, 24, 86),
    _known("RTX 4070", 46, 12, 89),
    _known("RTX 4090", 128, 24, 89),
    _known("RTX 6000 Ada", 142, 48, 89),
    _known("RTX 5090", 170, 32, 120),
    _known("Jetson AGX Orin 64 GB", 16, 64, 87),
    _known("T4", 40, 16, 75),
)


def named(name: str) -> Gpu:
    """A GPU of the table, by the words of its name; of several that fit, the one with the least memory per thread."""
    wanted = _words(name)
    found = [gpu for gpu in GPUS if wanted and wanted <= _words(gpu.name)]
    if not found:
        known = ", ".join(gpu.name for gpu in GPUS)
        raise ValueError(f"The GPU {name!r} is not known. Known are: {known}.")
    return min(found, key=lambda gpu: gpu.memory / gpu.resident)


def _words(name: str) -> set[str]:
    """Such as {"rtx", "4090"} of "NVIDIA GeForce RTX 4090" and of "rtx4090", {"a100", "80gb"} of "A100 80 GB"."""
    text = re.sub(r"(\d+) *gb\b", r" \1gb ", name.lower())
    text = re.sub(r"\brtx(?=\d)", "rtx ", text)
    return set(re.findall(r"\w+", text)) - {"nvidia", "geforce"}


def described(device: wp.Device) -> Gpu:
    """The same figures of a CUDA device that is here."""
    import torch

    found = torch.cuda.get_device_properties(device.ordinal)
    return Gpu(
        name=found.name,
        multiprocessors=found.multi_processor_count,
        threads=found.max_threads_per_multi_processor,
        memory=found.total_memory,
        arch=10 * found.major + found.minor,
    )


def free_memory(device: wp.Device) -> int:
    """Bytes of a CUDA device that nobody uses, this process and its stacks included."""
    import torch

    return torch.cuda.mem_get_info(device.ordinal)[0]
