"""What a lane needs: computed from shapes, and so on a real allocation."""

import jax
import numpy as np
import pytest

from apportion.data import replay as replays
from lib import memory, updates, workload
from lib.workload import Size

pytestmark = pytest.mark.slow

HUMANOID = workload.made_up_spec(workload.SIZES["Humanoid"])


def test_a_million_steps_of_a_humanoid_fit_in_1700_megabytes() -> None:
    assert memory.replay_bytes(HUMANOID, 1_000_000) <= 1.7e9


def test_shapes_say_what_a_replay_really_takes() -> None:
    """On a replay of 10,000 steps: arrays that exist, byte for byte."""
    replay = replays.init(HUMANOID, replays.capacity_for(HUMANOID, 10_000, 100))
    real = sum(np.asarray(array).nbytes for array in jax.tree.leaves(replay))
    assert memory.replay_bytes(HUMANOID, 10_000) == real


@pytest.mark.parametrize("lanes", [1, 3])
def test_learning_writes_into_the_replay_where_it_lies(lanes: int) -> None:
    """A second copy of it would be the largest thing in memory."""
    spec = workload.made_up_spec(Size(30, 5))
    work = workload.shapes(workload.settings("oracle", lanes=lanes, updates=1, replay_steps=300_000), spec)
    _, built = updates.compile_program(work)
    replay = lanes * memory.replay_bytes(spec, 300_000)
    assert built["program_bytes"] < 1.3 * replay
    assert built["scratch_bytes"] < 0.2 * replay
