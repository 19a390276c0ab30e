"""Random numbers per environment: they depend neither on other environments nor on the size of the batch.

Every episode has a key. Its random numbers are scrambled counters that start from the key (SplitMix64), so repeating a
step draws the same push.
"""

from __future__ import annotations

import math

import torch

# 64-bit constants as torch's signed integers; products wrap around, as the scrambler requires
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
SILVER = 0xD1342543DE82EF95 - (1 << 64)
FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND = 0x94D049BB133111EB - (1 << 64)
BITS = 24  # random bits per number: the resolution of float32 in [0, 1)
BLOCK = 32  # numbers drawn together: the overhead of a draw is larger than the cost of the numbers


def scramble(x: torch.Tensor) -> torch.Tensor:
    """A one-to-one map of 64-bit integers under which neighbours look unrelated."""
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def fork(keys: torch.Tensor, number: torch.Tensor | int) -> torch.Tensor:
    """Derive new keys from keys (n,); number: an int, or one per key (n,). Different numbers give different keys."""
    step = SILVER * (number + 1)  # + 1: zero would map to zero
    if isinstance(step, int):  # Python integers do not wrap around
        step = (step + (1 << 63)) % (1 << 64) - (1 << 63)
    return scramble(keys + step)


def seeded(seed: int, num: int, device: torch.device, first: int = 0) -> torch.Tensor:
    """Keys (num,) of a seed for environments `first`, `first` + 1, ...; they do not depend on num."""
    numbers = torch.arange(first, first + num, device=device)
    return fork(torch.full((num,), seed, dtype=torch.int64, device=device), numbers)


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """Logical right shift; torch's >> copies the sign bit instead."""
    return (x >> places) & ((1 << (64 - places)) - 1)


class Random:
    """A source of random numbers for n environments, from their keys (n,); every call draws new numbers.

    Args:
        keys: (n,) int64.
        like: a tensor with the dtype of the numbers.
        block: minimum number to draw at once; it does not affect the values.
    """

    def __init__(self, keys: torch.Tensor, like: torch.Tensor, block: int = BLOCK):
        self.keys, self._like, self._block, self._drawn = keys, like, block, 0
        self._ready = like.new_empty(len(keys), 0)

    def __len__(self) -> int:
        return len(self.keys)

    def uniform(self, low, high, *shape: int) -> torch.Tensor:
        """Numbers (n, *shape) between low and high, which are scalars or tensors that broadcast."""
        count = math.prod(shape)
        missing = count - self._ready.shape[1]
        if missing > 0:
            self._ready = torch.cat([self._ready, self._draw(max(missing, self._block))], 1)
        unit, self._ready = self._ready[:, :count], self._ready[:, count:]
        return low + (high - low) * unit.reshape(len(self), *shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """Numbers (n, *shape) with mean 0 and variance 1 (Box-Muller)."""
        radius = torch.sqrt(-2.0 * torch.log1p(-self.uniform(0.0, 1.0, *shape)))
        return radius * torch.cos(self.uniform(0.0, 2.0 * math.pi, *shape))

    def _draw(self, count: int) -> torch.Tensor:
        """New numbers (n, count) in [0, 1)."""
        counters = torch.arange(self._drawn + 1, self._drawn + count + 1, device=self.keys.device)
        self._drawn += count
        bits = _shifted(scramble(self.keys[:, None] + GOLDEN * counters), 64 - BITS)
        return bits.to(self._like.dtype).mul_(2.0**-BITS)
