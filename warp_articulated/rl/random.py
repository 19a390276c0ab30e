"""Random numbers that belong to an environment: what one draws depends neither on the others nor on how many there are.

Every episode has a key. All its numbers are scrambled counters that start from the key (SplitMix64), so a step
that is computed again draws the same push again.
"""

from __future__ import annotations

import math

import torch

# 64-bit constants as torch's signed integers; products wrap around, which is what a scrambler wants
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
SILVER = 0xD1342543DE82EF95 - (1 << 64)
FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND = 0x94D049BB133111EB - (1 << 64)
BITS = 24  # of a random number: as many as a float32 can tell apart in [0, 1)
BLOCK = 32  # numbers that are drawn together: the small operations of a draw cost more than the numbers themselves


def scramble(x: torch.Tensor) -> torch.Tensor:
    """A one-to-one map of 64-bit integers under which neighbours look unrelated."""
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def fork(keys: torch.Tensor, number: torch.Tensor | int) -> torch.Tensor:
    """New keys from old ones (n,): for every number, or every row of numbers (n,), others."""
    step = SILVER * (number + 1)  # + 1: zero would map to zero
    if isinstance(step, int):  # Python's do not wrap around
        step = (step + (1 << 63)) % (1 << 64) - (1 << 63)
    return scramble(keys + step)


def seeded(seed: int, num: int, device: torch.device, first: int = 0) -> torch.Tensor:
    """Keys (num,) of a seed, from that of number `first` on; they do not depend on how many there are."""
    numbers = torch.arange(first, first + num, device=device)
    return fork(torch.full((num,), seed, dtype=torch.int64, device=device), numbers)


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """x >> places with zeros coming in; torch copies the sign instead."""
    return (x >> places) & ((1 << (64 - places)) - 1)


class Random:
    """A source of random numbers for n environments, from their keys (n,); every call draws new ones.

    Args:
        keys: (n,) int64.
        like: a tensor of the dtype that the numbers shall have.
        block: how many to draw at least at once; what is drawn does not depend on it.
    """

    def __init__(self, keys: torch.Tensor, like: torch.Tensor, block: int = BLOCK):
        self.keys, self._like, self._block, self._drawn = keys, like, block, 0
        self._ready = like.new_empty(len(keys), 0)

    def __len__(self) -> int:
        return len(self.keys)

    def uniform(self, low, high, *shape: int) -> torch.Tensor:
        """(n, *shape) numbers between low and high, which are numbers or tensors that broadcast."""
        count = math.prod(shape)
        missing = count - self._ready.shape[1]
        if missing > 0:
            self._ready = torch.cat([self._ready, self._draw(max(missing, self._block))], 1)
        unit, self._ready = self._ready[:, :count], self._ready[:, count:]
        return low + (high - low) * unit.reshape(len(self), *shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """(n, *shape) numbers of mean 0 and variance 1 (Box and Muller)."""
        radius = torch.sqrt(-2.0 * torch.log1p(-self.uniform(0.0, 1.0, *shape)))
        return radius * torch.cos(self.uniform(0.0, 2.0 * math.pi, *shape))

    def _draw(self, count: int) -> torch.Tensor:
        """(n, count) new numbers in [0, 1)."""
        counters = torch.arange(self._drawn + 1, self._drawn + count + 1, device=self.keys.device)
        self._drawn += count
        bits = _shifted(scramble(self.keys[:, None] + GOLDEN * counters), 64 - BITS)
        return bits.to(self._like.dtype).mul_(2.0**-BITS)
