"""Delayed reward: the environment pays the sum of its rewards late, at the end of each segment.

A segment is a run of steps with one payment at its end. It never outlives its episode: a window cut short
by termination or by the time limit still pays, so payments always add up to the true return.
"""

import sys
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from apportion.core.config import UserError

Every = None | int | tuple[int, int]  # pay at the episode's end | every k steps | after lo..hi steps


class DelayedReward(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Hold rewards back and pay their sum when the segment ends.

    Put it outside any TimeLimit, or the payment of a truncated episode is lost. Each step's info says what
    was earned (`true_reward`) and whether the step closed a segment (`segment_end`; paying 0 closes one too).
    """

    def __init__(self, env: gymnasium.Env[Any, Any], every: Every = None) -> None:
        RecordConstructorArgs.__init__(self, every=every)
        super().__init__(env)
        self._shortest, self._longest = _window_range(every)
        self._rng = np.random.default_rng()
        self._owed = 0.0
        self._steps_left = self._draw_window()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        observation, info = super().reset(seed=seed, options=options)
        if seed is not None:
            # A child of the seed: reproducible, yet not the stream that the environment itself draws from.
            self._rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        self._owed = 0.0
        self._steps_left = self._draw_window()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        earned = _number(reward)
        self._owed += earned
        self._steps_left -= 1
        segment_end = bool(self._steps_left == 0 or terminated or truncated)
        paid = 0.0
        if segment_end:
            paid, self._owed = self._owed, 0.0
            self._steps_left = self._draw_window()
        if not isinstance(info, Mapping):
            raise UserError(f"the info of a step is {info!r}: return a dictionary as step()'s last value")
        info = {**info, "true_reward": earned, "segment_end": segment_end}
        return observation, paid, terminated, truncated, info

    def _draw_window(self) -> int:
        return int(self._rng.integers(self._shortest, self._longest, endpoint=True))


def _number(reward: Any) -> float:
    """Numbers of any type, but no text that looks like one."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise UserError(f"the reward of a step is {reward!r}: return a single number from step()")
    return float(array.item())


def max_segment_steps(every: Every, max_episode_steps: int) -> int:
    """The longest run of steps that one payment can cover."""
    return min(_window_range(every)[1], max_episode_steps)


def _window_range(every: Any) -> tuple[int, int]:
    """Shortest and longest window. Pairs may be lists, as JSON has no tuples."""
    if every is None:
        return sys.maxsize, sys.maxsize  # longer than any episode
    lengths = list(every) if isinstance(every, tuple | list) else [every, every]
    whole = all(isinstance(length, int | np.integer) and not isinstance(length, bool) for length in lengths)
    if not whole or len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1]:
        raise UserError(
            f"every={every!r} is no delay: use None (pay at the episode's end), "
            "a number of steps (20), or a range of steps ((10, 30))"
        )
    return int(lengths[0]), int(lengths[1])
