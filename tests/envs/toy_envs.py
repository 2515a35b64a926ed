"""Small environments for the tests: a scripted one for rewards, and one for spaces and declared facts."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Step = tuple[NDArray[Any], float, bool, bool, dict[str, Any]]


class Scripted(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """Plays given episodes: each a list of rewards, and whether it ends by itself or by a time limit."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, episodes: Sequence[tuple[Sequence[float], bool]]) -> None:
        self._episodes = iter(episodes)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        rewards, self._terminates = next(self._episodes)
        self._rewards = list(rewards)
        return np.zeros(1, np.float32), {}

    def step(self, action: NDArray[Any]) -> Step:
        reward = self._rewards.pop(0)
        ended = not self._rewards
        return np.zeros(1, np.float32), reward, ended and self._terminates, ended and not self._terminates, {}


class Toy(gymnasium.Env[Any, Any]):
    """Any spaces; remembers the last action; never ends."""

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        observation_names: Any = None,
        action_names: Any = None,
        true_graph: Any = None,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_names = observation_names
        self.action_names = action_names
        self.true_graph = true_graph
        self.last_action: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Step:
        self.last_action = action
        return self.observation_space.sample(), 1.0, False, False, {}
