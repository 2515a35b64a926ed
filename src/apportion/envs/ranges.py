"""Actions in the environment's own range, and as learners know them: in [-1, 1], or one-hot."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import UserError
from apportion.core.spec import Spec


def own_action(spec: Spec, action: NDArray[np.float32]) -> Any:
    """What the environment's step() takes: a vector within its bounds, or the number of a discrete action."""
    if spec.discrete:
        return spec.first_action + int(np.argmax(action))
    low, high = bounds(spec)
    own = low + (np.asarray(action, np.float64) + 1) / 2 * (high - low)
    return np.clip(own, low, high).astype(low.dtype)


def learners_actions(spec: Spec, actions: NDArray[Any]) -> NDArray[np.float32]:
    """[T, A] from actions [T, A] in the environment's own range, or numbers [T] of discrete ones."""
    given = np.asarray(actions)
    if spec.discrete:
        numbers = given.astype(np.int64) - spec.first_action
        if given.ndim != 1 or not ((numbers >= 0) & (numbers < spec.action_size)).all():
            last = spec.first_action + spec.action_size - 1
            raise UserError(f"actions must be numbers [T] from {spec.first_action} to {last}")
        return np.eye(spec.action_size, dtype=np.float32)[numbers]
    if given.ndim != 2 or given.shape[1] != spec.action_size:
        raise UserError(f"actions have shape {given.shape}: give [T, {spec.action_size}], one row per step")
    low, high = bounds(spec)
    return ((given - low) / (high - low) * 2 - 1).astype(np.float32)


def bounds(spec: Spec) -> tuple[NDArray[Any], NDArray[Any]]:
    """Low and high [A], in single precision where that holds them exactly, as most environments have them."""
    exact = np.array([spec.action_low, spec.action_high], np.float64)
    single = exact.astype(np.float32)
    low, high = single if np.array_equal(single, exact) else exact
    return low, high
