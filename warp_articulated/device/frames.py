"""Poses and velocities of frames from those of the links that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch

from ..geometry.rotations import quat_multiply, rotate
from ..model import Model


class Frames:
    """Some frames of a model, by their numbers in model.frames, on the device of `like`.

    Link poses and velocities are those of the files' frames, with a last row for the world, which link -1 picks.
    """

    def __init__(self, model: Model, chosen: Sequence[int], like: torch.Tensor):
        numbers = np.asarray(chosen, int)
        links = model.frame_link[numbers]
        origins = np.vstack([model.frame_pos, np.zeros(3)])[links]
        device = like.device
        self.links = torch.tensor(links, device=device)
        self.kernel_links = torch.tensor(links + 1, dtype=torch.int32, device=device)  # 0: the world
        self.kernel_offsets = like.new_tensor(model.frame_offset[numbers])
        self.offsets = like.new_tensor(model.frame_offset[numbers] - origins)
        self.quats = like.new_tensor(model.frame_quat[numbers])
        self._world = like.new_tensor([[[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]])

    def poses(self, link_poses: torch.Tensor) -> torch.Tensor:
        """(num_envs, frames, 7)."""
        carrier = self._carriers(link_poses, self._world)
        turned = quat_multiply(carrier[..., 3:], self.quats)
        return torch.cat([carrier[..., :3] + rotate(carrier[..., 3:], self.offsets), turned], -1)

    def velocities(self, link_poses: torch.Tensor, link_velocities: torch.Tensor) -> torch.Tensor:
        """(num_envs, frames, 6)."""
        arm = rotate(self._carriers(link_poses, self._world)[..., 3:], self.offsets)
        motion = self._carriers(link_velocities, torch.zeros_like(self._world[..., :6]))
        linear = motion[..., :3] + torch.linalg.cross(motion[..., 3:], arm)
        return torch.cat([linear, motion[..., 3:]], -1)

    def _carriers(self, links: torch.Tensor, world: torch.Tensor) -> torch.Tensor:
        return torch.cat([links, world.expand(links.shape[0], -1, -1)], 1)[:, self.links]


def numbers_of(model: Model, frames) -> tuple[int, ...]:
    """Numbers in model.frames of names or numbers; None: all; a name alone: that one."""
    if frames is None:
        return tuple(range(len(model.frames)))
    if isinstance(frames, (str, Integral)):
        frames = (frames,)
    return tuple(_number_of(model, frame) for frame in frames)


def _number_of(model: Model, frame) -> int:
    if isinstance(frame, str):
        return model.frame(frame)
    count = len(model.frames)
    if not isinstance(frame, Integral) or isinstance(frame, bool) or int(frame) not in range(count):
        raise ValueError(f"frames has {frame!r}; it must be a name in model.frames or a number from 0 to {count - 1}.")
    return int(frame)
