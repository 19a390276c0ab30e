"""An inertial measurement unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from ..device import checks
from ..geometry.rotations import rotate_back
from ..simulator import Simulator


class ImuReading(NamedTuple):
    """What an `Imu` reads, in the axes of its frame."""

    accelerometer: torch.Tensor  # (num_envs, 3) m/s^2
    gyroscope: torch.Tensor  # (num_envs, 3) rad/s


class Imu:
    """Accelerometer and gyroscope in a frame of the robot.

    The accelerometer reads the mean acceleration over a step minus gravity's: at rest it points up and reads 9.81. Both
    are in the axes that the frame has after the step.

    Args:
        sim: the simulator whose states are read.
        frame: name or number in model.frames.
        accelerometer_noise: m/s^2, standard deviation of the noise of each reading.
        gyroscope_noise: rad/s, likewise.
        seed: of the noise.
    """

    def __init__(
        self,
        sim: Simulator,
        frame: str | int,
        *,
        accelerometer_noise: float = 0.0,
        gyroscope_noise: float = 0.0,
        seed: int = 0,
    ):
        for name, value in (("accelerometer_noise", accelerometer_noise), ("gyroscope_noise", gyroscope_noise)):
            checks.positive(name, value, zero=True)
        if not isinstance(frame, (str, int)):
            raise TypeError(f"frame is {frame!r}; it must be one name or number in model.frames: an Imu has one frame.")
        self.sim, self.frame = sim, frame
        self.noise = (float(accelerometer_noise), float(gyroscope_noise))
        device = sim.initial_state()[0].device
        self._generator = torch.Generator(device).manual_seed(checks.seed(seed))
        sim.frame_poses(sim.initial_state()[0], frame)  # a wrong name is an error here, not at the first reading

    def __call__(
        self, q, qd, q_next, qd_next, *, substeps: int | None = None, params: Mapping | None = None
    ) -> ImuReading:
        """The reading after a step of `sim` that led from (q, qd) to (q_next, qd_next).

        substeps, params: those of the step, if they were not the simulator's own.
        """
        sim = self.sim
        before, after = (
            sim.frame_velocities(*state, self.frame, params=params) for state in ((q, qd), (q_next, qd_next))
        )
        axes = sim.frame_poses(q_next, self.frame, params=params)[:, 0, 3:]
        gravity = torch.as_tensor((params or {}).get("gravity", sim.params["gravity"])).to(axes)
        mean = (after - before)[:, 0, :3] / (
            sim.dt * (sim.substeps if substeps is None else checks.whole("substeps", substeps, 1))
        )
        readings = rotate_back(axes, mean - gravity), rotate_back(axes, after[:, 0, 3:])
        return ImuReading(*(self._noisy(value, sigma) for value, sigma in zip(readings, self.noise, strict=True)))

    def _noisy(self, value: torch.Tensor, sigma: float) -> torch.Tensor:
        if sigma == 0.0:
            return value
        noise = torch.randn(value.shape, generator=self._generator, dtype=value.dtype, device=value.device)
        return value + sigma * noise
