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


class Steps(Walk):
    """A step in which something is wrong."""

    def __init__(self, how: str) -> None:
        self.how = how

    def step(self, action: NDArray[Any]) -> Any:
        if self.how == "ClipsInPlace":
            np.clip(action, -0.1, 0.1, out=action)
        if self.how == "Unseeded":  # whatever the seed, it goes its own way
            self.place = self.place + np.random.default_rng().normal(size=2).astype(np.float32)
        while self.how == "Stuck" and self.steps == 4:
            time.sleep(0.01)
        if self.how == "Raises" and self.steps == 2:
            raise RuntimeError("the motor is hot\nand a second line")
        if self.how == "Talks":
            print("hello from the environment", flush=True)
        seen, reward, terminated, truncated, info = super().step(action)
        match self.how:
            case "NanObservation":
                seen = np.array([seen[0], np.nan if self.steps == 3 else 0])
            case "LongObservation":
                seen = np.append(seen, 0)
            case "Asks":  # and observes how many characters somebody typed
                seen = np.full(2, len(sys.stdin.readline()), np.float32)
            case "SeesJax":  # whether it has been imported into its process
                seen = np.full(2, "jax" in sys.modules)
            case "OldStep":  # as Gym had it: four values
                return seen, reward, terminated, info
            case "NoInfo":
                return seen, reward, terminated, truncated, None
            case "TextEnd":
                return seen, reward, "no", truncated, info
        strange = {"TextReward": "5", "HugeReward": 1e300}  # more than single precision can square
        if self.how == "NanReward" and self.steps == 2:
            strange["NanReward"] = float("nan")
        return seen, strange.get(self.how, reward), terminated, truncated, info


class Resets(Walk):
    """A first observation that is wrong."""

    def __init__(self, how: str) -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.array([np.inf, 0]) if self.how == "NanReset" else np.zeros(3), {}


class OldReset(Walk):
    """As Gym had it: without arguments."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class EndsEarlier(Walk):
    """Lasts one step less at every reset."""

    patience = 10

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        type(self).patience -= 1
        return super().reset(seed=seed)

    def step(self, action: NDArray[Any]) -> Step:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps >= self.patience, truncated, info


class Outlives(Walk):
    """Promises to end after three steps, and does not."""

    max_episode_steps = 3


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


_STEPS = ("ClipsInPlace", "Unseeded", "Stuck", "Raises", "Talks", "NanObservation", "LongObservation", "Asks")
_STEPS += ("SeesJax", "OldStep", "NoInfo", "TextEnd", "TextReward", "HugeReward", "NanReward")
_ENTRIES: dict[str, tuple[type[Walk], dict[str, Any]]] = {
    **{each.__name__: (each, {}) for each in (Walk, OldReset, EndsEarlier, Outlives, Simulator)},
    **{how: (Steps, {"how": how}) for how in _STEPS},
    **{how: (Resets, {"how": how}) for how in ("NanReset", "LongReset")},
}
for _name, (_class, _kwargs) in _ENTRIES.items():
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_name}-v0", entry_point=_class, max_episode_steps=7, kwargs=_kwargs)
