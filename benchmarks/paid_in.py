"""Greenhouse, paid in another unit: what `pay.py` trains on, as `paid_in:Greenhouse-v0`."""

from typing import Any

import gymnasium
from gymnasium.wrappers import TransformReward

from apportion.training.presets import GREENHOUSE


def paid_in(unit: float, level: float = 0.0) -> gymnasium.Env[Any, Any]:
    """With each reward times `unit`, and `level` added to it."""
    return TransformReward(gymnasium.make(GREENHOUSE), lambda reward: float(reward) * unit + level)


ID = "paid_in:Greenhouse-v0"
STEPS = 40  # of every episode
gymnasium.register("Greenhouse-v0", entry_point=paid_in, max_episode_steps=STEPS)
