"""Environments that are unusual but right; workers find them as `odd_envs:...`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Plain(gymnasium.Env[Any, NDArray[Any]]):
    """Three numbers that wander, two actions. All others differ from it in one thing."""

    observation_space: spaces.Space[Any] = spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.uniform(-1, 1, 3)
        return self.observe(), {}

    def step(self, action: NDArray[Any]) -> Step:
        self.steps += 1
        self.place = np.tanh(self.place + np.append(action, 0.1 * self.np_random.normal()))
        return self.observe(), self.reward(), self.ends(), False, {}

    def observe(self) -> Any:
        return self.place.astype(np.float32)

    def reward(self) -> float:
        return float(1 - self.place[0] ** 2)

    def ends(self) -> bool:
        return False


def make_plain() -> gymnasium.Env[Any, Any]:
    """The same by a function: with a time limit, but without an id."""
    return gymnasium.wrappers.TimeLimit(Plain(), 10)


class OneStep(Plain):
    def ends(self) -> bool:
        return True


class EndsAtRandom(Plain):
    def ends(self) -> bool:
        return bool(self.np_random.random() < 0.2)


class Constants(Plain):
    """Columns that never change, one of them far from zero."""

    def observe(self) -> Any:
        return np.array([self.place[0], 0.0, 7.0], np.float32)


class Doubles(Plain):
    """float64, with bounds that float32 cannot hold."""

    observation_space = spaces.Box(-1e300, 1e300, (3,), np.float64)

    def observe(self) -> Any:
        return self.place.astype(np.float64)


class Rich(Plain):
    """Rewards of a million."""

    def reward(self) -> float:
        return 1e6 * super().reward()


class Late(Plain):
    """Keeps its own books, and settles them when the episode ends."""

    def step(self, action: NDArray[Any]) -> Step:
        observation, reward, _, truncated, info = super().step(action)
        self.account = reward + (self.account if self.steps > 1 else 0.0)
        over = self.steps == 10
        return observation, self.account if over else 0.0, over, truncated, info


class Goal(Plain):
    """Reports that it has been reached at the fourth step of an episode that began right of the middle, and
    not any more at the fifth."""

    def step(self, action: NDArray[Any]) -> Step:
        if self.steps == 0:
            self.right = self.place[0] > 0
        observation, reward, ended, truncated, _ = super().step(action)
        reached = 1.0 if self.right and self.steps == 4 else 0.0
        return observation, reward, ended, truncated, {"success": reached}


class Buttons(Plain):
    """Actions -1, 0 and 1; the observation begins with the action as it came."""

    action_space = spaces.Discrete(3, start=-1)
    action_names = ("left", "stay", "right")

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action), action
        _, reward, ended, truncated, info = super().step(np.array([action, 0.0]))
        self.place[0] = action
        return self.observe(), reward, ended, truncated, info


for _class in (Plain, OneStep, EndsAtRandom, Constants, Doubles, Rich, Late, Goal, Buttons):
    if f"{_class.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_class.__name__}-v0", entry_point=_class, max_episode_steps=20)
