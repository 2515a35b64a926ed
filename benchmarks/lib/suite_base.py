"""What the suite's tasks have in common: gauges and levers with units, and two ways to show them.

A task is written once, in natural units. Raw, it shows these; scaled, each gauge's range becomes [-1, 1].
"""

import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

Range = tuple[float, float]
Gauges = dict[str, float]  # raw values by name


class Task(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A small control task. Gauges never show more than their range; levers never do more than theirs."""

    gauges: ClassVar[dict[str, Range]]
    levers: ClassVar[dict[str, Range]]
    steps: ClassVar[int]  # time limit

    def __init__(self, scaled: bool = False) -> None:
        self.scaled = scaled
        self.observation_names, self.action_names = tuple(self.gauges), tuple(self.levers)
        self.low, self.high = np.array(list(self.gauges.values())).T
        self.observation_space = _box(self.gauges, scaled)
        self.action_space = _box(self.levers, scaled)
        self.clock = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.clock = 0
        self.begin()
        return self._observation(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        reward, failed = self.advance(*self._lever_values(action))
        self.clock += 1
        return self._observation(), reward, failed, False, {}

    def begin(self) -> None:
        """Draws the state that an episode starts from."""
        raise NotImplementedError

    def read(self) -> tuple[float, ...]:
        """What the gauges show now, in raw units."""
        raise NotImplementedError

    def advance(self, *levers: float) -> tuple[float, bool]:
        """One step with the levers in raw units: its reward, and whether it ended in a failure."""
        raise NotImplementedError

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        """What a sensible operator would do, in raw units."""
        raise NotImplementedError

    def rule_action(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The hand rule as a policy of this environment, raw or scaled."""
        values = observation.astype(np.float64)
        if self.scaled:
            values = self.low + (values + 1.0) / 2.0 * (self.high - self.low)
        wanted = self.rule(dict(zip(self.gauges, values.tolist(), strict=True)))
        ranges = zip(wanted, self.levers.values(), strict=True)
        limited = [(clip(value, low, high), low, high) for value, (low, high) in ranges]
        if self.scaled:
            return np.array(
                [2.0 * (value - low) / (high - low) - 1.0 for value, low, high in limited], np.float32
            )
        return np.array([value for value, _, _ in limited], np.float32)

    def normal(self, count: int) -> list[float]:
        """Independent normal numbers."""
        return self.np_random.standard_normal(count).tolist()

    def uniform(self, low: float, high: float) -> float:
        return float(self.np_random.uniform(low, high))

    def _observation(self) -> NDArray[np.float32]:
        shown = np.minimum(np.maximum(self.read(), self.low), self.high)
        if self.scaled:
            shown = 2.0 * (shown - self.low) / (self.high - self.low) - 1.0
        return shown.astype(np.float32)

    def _lever_values(self, action: NDArray[np.float32]) -> list[float]:
        pairs = zip(action.tolist(), self.levers.values(), strict=True)
        if self.scaled:
            return [low + (clip(value, -1.0, 1.0) + 1.0) / 2.0 * (high - low) for value, (low, high) in pairs]
        return [clip(value, low, high) for value, (low, high) in pairs]


def _box(ranges: dict[str, Range], scaled: bool) -> gymnasium.spaces.Box:
    if scaled:
        return gymnasium.spaces.Box(-1.0, 1.0, (len(ranges),), np.float32)
    low, high = np.array(list(ranges.values()), np.float32).T
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def bell(value: float, best: float, width: float) -> float:
    """1 at `best`, falling to 1/e at `width` from it."""
    return math.exp(-(((value - best) / width) ** 2))


def drift(value: float, mean: float, pull: float, push: float) -> float:
    """A wandering quantity one step later: drawn back to its mean, pushed by chance."""
    return value + pull * (mean - value) + push
