"""`make_settings`: checks the settings given by a user and converts them to a learner's Settings."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from numbers import Real
from typing import Any

from ...device import checks
from .learner import Learner

FROM_ZERO = {"warm_up", "samples_around", "length_from", "length_to"}  # integers that may be 0; others start at 1
SHARES = {"gamma", "trace", "target_rate", "average_rate", "last_rate", "real_ratio", "model_holdout"}
ANY_SIGN = {"log_std", "target_entropy"}
MAY_BE_ZERO = {"entropy", "model_decay", "samples_reach"}  # and learning rates; other numbers must be positive


def make_settings(learner: type[Learner], values: dict[str, Any]) -> Any:
    """The learner's Settings with these values; raises an error for an unknown name or a wrong value."""
    known = {field.name: field for field in fields(learner.Settings)}
    made = learner.Settings()
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{learner.__name__} has no setting {name!r}; it has {', '.join(known)}.")
        usual = getattr(made, name)
        if isinstance(usual, tuple) and isinstance(value, (list, tuple)):
            value = tuple(value)
        elif isinstance(usual, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if usual is not None and type(value) is not type(usual):
            raise ValueError(f"{name} is {value!r}; it must have the same type as the default {usual!r}.")
        if value is not None:
            _check_range(name, value, str(known[name].type))
        made = replace(made, **{name: value})
    return made


def _check_range(name: str, value: Any, kind: str) -> None:
    if kind in ("bool", "str"):
        return  # checked by the learner
    if name.endswith("betas"):
        if len(value) != 2 or not all(isinstance(beta, float) and 0.0 <= beta < 1.0 for beta in value):
            raise ValueError(f"{name} is {value}; it must be two numbers such as 0.9, at least 0.0 and below 1.0.")
    elif name.endswith("hidden"):
        for width in value:
            checks.whole(name, width, 1)
    elif name in SHARES:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value}; it must be between 0 and 1.")
    elif name in ANY_SIGN:
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}; it must be a number.")
    elif kind.startswith("int"):
        checks.whole(name, value, 0 if name in FROM_ZERO else 1)
    else:
        checks.positive(name, value, zero=name in MAY_BE_ZERO or name.endswith("rate"))
