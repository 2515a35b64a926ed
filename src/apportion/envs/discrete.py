"""Discrete actions as one-hot vectors: the form in which learners, replay and graphs know them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs


class OneHotAction(gymnasium.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """The largest entry of a vector is the action. A policy that gives zeros only takes the first one."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, spaces.Discrete)
        self.first = int(space.start)
        self.action_space = spaces.Box(0.0, 1.0, (int(space.n),), np.float32)

    def action(self, action: Any) -> int:
        return self.first + int(np.argmax(action))
