"""Environments that misbehave, registered under `lane_envs:...` so that worker processes find them too."""

import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Step = tuple[NDArray[Any], float, bool, bool, dict[str, Any]]


class Walk(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """A random walk that adds the action; well behaved. What follows breaks one thing each."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_names = ("left", "right")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.normal(size=2).astype(np.float32)
        return self.place, {}

    def step(self, action: NDArray[Any]) -> Step:
        self.steps += 1
        self.place = (self.place + action + 0.1 * self.np_random.normal(size=2)).astype(np.float32)
        return self.place, float(self.place.sum()), False, False, {}


class Unseeded(Walk):
    """Goes its own way whatever the seed."""

    def step(self, action: NDArray[Any]) -> Step:
        self.place = self.place + np.random.default_rng().normal(size=2).astype(np.float32)
        return super().step(action)


class EndsEarlier(Walk):
    """Lasts one step less at every reset."""

    patience = 10

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        type(self).patience -= 1
        return super().reset(seed=seed)

    def step(self, action: NDArray[Any]) -> Step:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps >= self.patience, truncated, info


class Stuck(Walk):
    """Never comes back from its fifth step."""

    def step(self, action: NDArray[Any]) -> Step:
        while self.steps == 4:
            time.sleep(0.01)
        return super().step(action)


class Outlives(Walk):
    """Promises to end after three steps, and does not."""

    max_episode_steps = 3


class NanObservation(Walk):
    def step(self, action: NDArray[Any]) -> Step:
        observation, *rest = super().step(action)
        return np.array([observation[0], np.nan if self.steps == 3 else 0]), *rest


class NanReset(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.array([np.inf, 0]), {}


class LongObservation(Walk):
    def step(self, action: NDArray[Any]) -> Step:
        observation, *rest = super().step(action)
        return np.append(observation, 0), *rest


class LongReset(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.zeros(3), {}


class OldStep(Walk):
    """As Gym had it: four values."""

    def step(self, action: NDArray[Any]) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NanReward(Walk):
    def step(self, action: NDArray[Any]) -> Step:
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self.steps == 2 else reward, *rest


class HugeReward(Walk):
    """Pays more than single precision can square."""

    def step(self, action: NDArray[Any]) -> Step:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1e300, terminated, truncated, info


class TextReward(Walk):
    """Pays in words."""

    def step(self, action: NDArray[Any]) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, "5", terminated, truncated, info


class NoInfo(Walk):
    def step(self, action: NDArray[Any]) -> Any:
        return *super().step(action)[:4], None


class OldReset(Walk):
    """As Gym had it: without arguments."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class TextEnd(Walk):
    """Says in words whether it is over."""

    def step(self, action: NDArray[Any]) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, "no", truncated, info


class ClipsInPlace(Walk):
    """Writes into the action it is given."""

    def step(self, action: NDArray[Any]) -> Step:
        np.clip(action, -0.1, 0.1, out=action)
        return super().step(action)


class Raises(Walk):
    def step(self, action: NDArray[Any]) -> Step:
        if self.steps == 2:
            raise RuntimeError("the motor is hot\nand a second line")
        return super().step(action)


class Talks(Walk):
    def step(self, action: NDArray[Any]) -> Step:
        print("hello from the environment", flush=True)
        return super().step(action)


class Asks(Walk):
    """Observes how many characters somebody typed."""

    def step(self, action: NDArray[Any]) -> Step:
        _, *rest = super().step(action)
        return np.full(2, len(sys.stdin.readline()), np.float32), *rest


class Simulator(Walk):
    """Has a process of its own, whose number it observes, and ends it when it is closed, or forgets it."""

    def __init__(self, forgets: bool = False) -> None:
        self.forgets = forgets
        self.process = subprocess.Popen(["sleep", "600"])

    def step(self, action: NDArray[Any]) -> Step:
        _, *rest = super().step(action)
        number = self.process.pid  # in two parts, since single precision has too few digits
        return np.array([number // 1000, number % 1000], np.float32), *rest

    def close(self) -> None:
        if not self.forgets:
            self.process.terminate()
            print("the simulator ended with", self.process.wait(), flush=True)


class SeesJax(Walk):
    """Observes whether JAX has been imported into its process."""

    def step(self, action: NDArray[Any]) -> Step:
        _, *rest = super().step(action)
        return np.full(2, "jax" in sys.modules), *rest


for _class in (Walk, *Walk.__subclasses__()):
    if f"{_class.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_class.__name__}-v0", entry_point=_class, max_episode_steps=7)
