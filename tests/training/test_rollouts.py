"""On-policy backbones get the newest steps in order, with what the policy that acted thought of them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import ppo
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.lane import ChunkWriter
from apportion.envs.make import EnvConfig
from apportion.training import updates
from apportion.training.agent import AgentState
from apportion.training.loop import online, open_pool
from apportion.training.settings import Config, Schedule
from builders import SPEC


def _chunk(writer: ChunkWriter, density: float) -> Chunk:
    arrays = {name: jnp.asarray(array) for name, array in writer.finish(np.full(3, 99.0)).items()}
    return Chunk(**arrays, log_density=jnp.full(arrays["paid"].shape, density))


def _step(writer: ChunkWriter, number: int, terminated: bool = False) -> None:
    writer.step(np.full(3, number), np.zeros(2), 0.0, float(number), terminated)


@pytest.fixture(scope="module")
def replay() -> tuple[Replay, int]:
    """Steps 0 and 1 are paid at once; 2, 3 and the end of their episode, 4, together, in the second chunk; 5
    and 6 are the next episode's, and its 7 is not paid yet."""
    first, second = (ChunkWriter(5, 3, 2) for _ in range(2))
    for number in range(2):
        _step(first, number)
        first.segment(1, 0.0, number + 1)
    for number in (2, 3):
        _step(first, number)
    _step(second, 4, terminated=True)
    second.segment(3, 0.0, 5)
    second.final(np.full(3, 5.0))
    _step(second, 5)
    second.segment(1, 0.0, 1)
    _step(second, 6)
    second.segment(1, 0.0, 2)
    _step(second, 7)
    insert = jax.jit(replays.insert)
    before = insert(replays.init(SPEC, 40, on_policy=True), _chunk(first, -1.0))
    return insert(before, _chunk(second, -2.0)), int(before.steps)


def test_the_newest_steps_are_those_of_segments_just_closed_with_what_was_thought_of_them(
    replay: tuple[Replay, int],
) -> None:
    found = updates.newest_steps(replay[0], jnp.asarray(replay[1]), 8)
    assert found.acted is not None
    real = np.asarray(found.acted.real)
    np.testing.assert_array_equal(real, [True] * 5 + [False] * 3)
    np.testing.assert_array_equal(found.true_reward[real], [2, 3, 4, 5, 6])
    np.testing.assert_array_equal(found.acted.follows[real], [True, True, False, True, False])
    np.testing.assert_array_equal(found.next_observation[real, 0], [3, 4, 5, 6, 7])
    np.testing.assert_array_equal(found.terminated[real], [False, False, True, False, False])
    np.testing.assert_array_equal(found.acted.log_density[real], [-1, -1, -2, -2, -2])


SCHEDULE = Schedule(
    240, 60, 2, warmup_steps=60, evaluate_every=240, replay_steps=1100, evaluation_episodes=1, workers=0
)


def test_the_policy_that_learns_is_the_one_that_acted() -> None:
    """In its first step on a rollout every ratio is 1. So nothing is clipped, and the advantages sum to 0.
    Units are measured after the first iteration, and what acts follows them."""
    config = Config(
        EnvConfig("apportion/Greenhouse-v0", delay="none"),
        method="oracle",
        backbone="ppo",
        backbone_config=ppo.Config(hidden=(8,), epochs=1, batch_size=1000, clip=1e-3, learning_rate=0.1),
        schedule=SCHEDULE,
    )
    with open_pool(config) as pool:
        seen = [snapshot.metrics for snapshot in online(config, pool)]
    assert [bool(metrics) for metrics in seen] == [False, True, True, True]
    for metrics in seen[1:]:
        assert metrics["clipped"] == 0
        np.testing.assert_allclose(metrics["actor_loss"], 0, atol=1e-4)


def test_actions_at_random_are_noted_as_such() -> None:
    backbone, writer = ppo.make(ppo.Config(hidden=(8,))), ChunkWriter(2, 3, 2)
    _step(writer, 1)
    chunk = _chunk(writer, 0.0)
    discrete = replace(SPEC, discrete=True)
    state = AgentState(jnp.ones(3), backbone.init(jax.random.key(0), SPEC), None)
    method = Config(EnvConfig("apportion/Greenhouse-v0"), method="observed").make_method()
    for spec, expected in ((SPEC, -2 * np.log(2)), (discrete, -np.log(2))):
        found = updates.with_log_density(method, backbone, spec, state, chunk, jnp.asarray(True))
        np.testing.assert_allclose(found.log_density, expected, rtol=1e-6)
