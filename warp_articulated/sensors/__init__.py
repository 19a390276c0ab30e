"""What a robot's sensors would read: differentiable functions of states that a Simulator has computed."""

from .imu import Imu, ImuReading
from .touch import Touch

__all__ = ["Imu", "ImuReading", "Touch"]
