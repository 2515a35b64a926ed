"""The arrays that one lane hands over after acting for some steps."""

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.envs.wire import Arrays


class ChunkWriter:
    """Fills the padded arrays of replay.Chunk, row by row."""

    def __init__(self, steps: int, states: int, actions: int) -> None:
        rows = (
            2 * steps + 1
        )  # the worst case: every episode has one step, and a row for its final observation
        self.arrays: Arrays = {
            "observation": np.zeros((rows, states), np.float32),
            "action": np.zeros((rows, actions), np.float32),
            "paid": np.zeros(rows, np.float32),
            "true_reward": np.zeros(rows, np.float32),
            "terminated": np.zeros(rows, np.bool_),
            "segment_start": np.zeros(steps, np.int32),
            "segment_length": np.zeros(steps, np.int32),
            "segment_total": np.zeros(steps, np.float32),
            "episode_start": np.zeros(steps, np.int32),
        }
        self.rows = 0
        self.segments = 0

    def step(
        self,
        observation: NDArray[np.float32],
        action: NDArray[np.float32],
        paid: float,
        true_reward: float,
        terminated: bool,
    ) -> None:
        row = self.rows
        self.arrays["observation"][row] = observation
        self.arrays["action"][row] = action
        self.arrays["paid"][row] = paid
        self.arrays["true_reward"][row] = true_reward
        self.arrays["terminated"][row] = terminated
        self.rows += 1

    def segment(self, length: int, total: float, steps_in_episode: int) -> None:
        """The rows just written close a segment."""
        slot = self.segments
        self.arrays["segment_start"][slot] = self.rows - length
        self.arrays["segment_length"][slot] = length
        self.arrays["segment_total"][slot] = total
        self.arrays["episode_start"][slot] = self.rows - steps_in_episode
        self.segments += 1

    def final(self, observation: NDArray[np.float32]) -> None:
        """The observation after the episode's last step takes a row of its own."""
        self.arrays["observation"][self.rows] = observation
        self.rows += 1

    def finish(self, next_observation: NDArray[np.float32]) -> Arrays:
        self.arrays["observation"][self.rows] = next_observation
        self.arrays["rows"] = np.asarray(self.rows, np.int32)
        self.arrays["segments"] = np.asarray(self.segments, np.int32)
        return self.arrays


def blank_chunk(spec: Spec, steps: int) -> Arrays:
    """What a lane hands over that has not acted."""
    size = spec.observation_size
    return ChunkWriter(steps, size, spec.action_size).finish(np.zeros(size, np.float32))
