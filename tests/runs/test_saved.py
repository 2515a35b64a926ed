"""What a training holds, on its way into a checkpoint."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import filled

SPEC = Spec("toy", ("height",), ("push",), max_episode_steps=4, max_segment_steps=4)


def test_a_growing_replay_is_saved_with_few_programs(caplog: pytest.LogCaptureFixture) -> None:
    """Each program stays in memory: one for every size would be a leak of megabytes with each checkpoint."""
    empty = jax.tree.map(lambda x: jnp.zeros((2, *x.shape), x.dtype), replays.init(SPEC, 600))
    numbers = np.arange(1200.0, dtype=np.float32).reshape(2, 600, 1)
    empty = empty._replace(observation=jnp.asarray(numbers))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for rows in range(1, 600, 23):
            counts = jnp.array([rows - 1, rows], jnp.int32)
            saved = filled(empty._replace(rows=counts, segments=counts))
            assert saved["observation"].shape == (2, min(600, rows + 1), 1)
            np.testing.assert_array_equal(saved["observation"], numbers[:, : rows + 1])
            assert saved["segment_total"].shape == (2, rows)
    slices = [each for each in caplog.messages if "Finished XLA compilation" in each]
    assert 0 < len(slices) < 80, len(slices)
