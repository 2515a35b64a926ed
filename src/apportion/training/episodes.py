"""Episodes that somebody else's trainer plays: step by step until they end, then whole into the replay."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.data.replay import Chunk
from apportion.envs.lane import LARGEST_REWARD
from apportion.envs.spaces import not_finite


class Episode(NamedTuple):
    """A finished one, without padding."""

    observations: NDArray[np.float32]  # [T+1, S] with the one after the last step
    actions: NDArray[np.float32]  # [T, A] in [-1, 1], or one-hot
    paid: NDArray[np.float32]  # [T]
    true_rewards: NDArray[np.float32]  # [T] where the environment tells, else what was paid
    segment_end: NDArray[np.bool_]  # [T] whether a payment closed a segment there; the last step does
    terminated: bool  # a true end; False where its time was up


class Unfinished:
    """The steps so far of an episode that goes on."""

    def __init__(self, max_steps: int) -> None:
        self.max_steps = max_steps
        self.forget()

    def step(
        self, observation: Any, action: Any, next_observation: Any, paid: float, info: dict[str, Any]
    ) -> None:
        """One step more. `segment_end` and `true_reward` are what DelayedReward says in its info."""
        before, after = np.array(observation, np.float32), np.array(next_observation, np.float32)
        for seen in (before, after):
            wrong = not_finite(seen)
            check(wrong is None, f"an observation of the environment has {wrong}")
        check(
            abs(paid) <= LARGEST_REWARD,
            f"a reward of the environment is {paid}: give finite numbers up to {LARGEST_REWARD:g}",
        )
        if self.observations and not np.array_equal(self.observations[-1], before):
            self.forget()  # the environment was reset meanwhile: what the steps before earned is unknown
        check(
            len(self.actions) < self.max_steps,
            f"an episode has more than max_episode_steps={self.max_steps} steps: raise it",
        )
        self.observations += [after] if self.observations else [before, after]
        self.actions.append(np.array(action, np.float32))
        self.paid.append(float(paid))
        self.true_rewards.append(float(info.get("true_reward", paid)))
        self.segment_end.append(bool(info.get("segment_end", False)))

    def end(self, terminated: bool) -> Episode:
        """The whole episode; from here on the next one."""
        self.segment_end[-1] = True
        episode = Episode(
            np.stack(self.observations),
            np.stack(self.actions),
            np.array(self.paid, np.float32),
            np.array(self.true_rewards, np.float32),
            np.array(self.segment_end),
            terminated,
        )
        self.forget()
        return episode

    def forget(self) -> None:
        """Begin anew: the episode was left before its end."""
        self.observations: list[NDArray[np.float32]] = []
        self.actions: list[NDArray[np.float32]] = []
        self.paid: list[float] = []
        self.true_rewards: list[float] = []
        self.segment_end: list[bool] = []


def as_chunk(episode: Episode, spec: Spec) -> Chunk:
    """As the replay takes it: rows padded to those of the longest episode, so that one program serves all."""
    steps = len(episode.paid)
    ends = np.flatnonzero(episode.segment_end) + 1
    starts = np.concatenate([[0], ends[:-1]])
    totals = [episode.paid[start:end].sum() for start, end in zip(starts, ends, strict=True)]
    rows, places = spec.max_episode_steps + 2, 1 << (len(ends) - 1).bit_length()
    terminated = np.zeros(rows, np.bool_)
    terminated[steps - 1] = episode.terminated

    def padded(values: Any, size: int, dtype: Any) -> NDArray[Any]:
        array = np.asarray(values, dtype)
        return np.pad(array, [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)])

    observation = padded(episode.observations, rows, np.float32)
    observation[steps + 1 :] = episode.observations[-1]  # the row after the last counts in measured units
    arrays: dict[str, Any] = {
        "observation": observation,
        "action": padded(episode.actions, rows, np.float32),
        "paid": padded(episode.paid, rows, np.float32),
        "true_reward": padded(episode.true_rewards, rows, np.float32),
        "terminated": terminated,
        "rows": np.asarray(steps + 1, np.int32),
        "segment_start": padded(starts, places, np.int32),
        "segment_length": padded(ends - starts, places, np.int32),
        "segment_total": padded(totals, places, np.float32),
        "episode_start": np.zeros(places, np.int32),
        "segments": np.asarray(len(ends), np.int32),
    }
    return Chunk(**arrays)
