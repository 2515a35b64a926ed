"""Now and then a method looks at many segments at once: GRD's closed-form structure does."""

from dataclasses import replace

import builders
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion import replay as replays
from apportion.envs.lane import _ChunkWriter
from apportion.envs.make import EnvConfig
from apportion.methods import grd
from apportion.presets import preset
from apportion.replay import Chunk
from apportion.settings import Config, Schedule
from apportion.train import _doublings, online, open_pool
from apportion.types import Batch, Edges, Record

CLOSED = grd.Config(hidden=(8, 8), structure="closed-form", segments=2)


def test_a_look_is_due_each_time_the_segments_have_doubled() -> None:
    counts = np.array([0, 1, 99, 100, 199, 200, 399, 400, 1600])
    assert _doublings(counts, 100).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 5]


def _episode(number: int, length: int) -> tuple[np.ndarray, np.ndarray, float]:
    observations = 100 * number + np.arange(3 * (length + 1), dtype=np.float32).reshape(length + 1, 3)
    return observations, np.full((length, 2), number / 100, np.float32), float(number)


def _store(lengths: list[int], capacity: int) -> replays.Replay:
    replay = replays.init(builders.SPEC, capacity)
    for number, length in enumerate(lengths):
        observations, actions, total = _episode(number, length)
        writer = _ChunkWriter(6, 3, 2)
        for t in range(length):
            writer.step(observations[t], actions[t], 0.0, 0.0, False)
        writer.segment(length, total, length)
        writer.final(observations[-1])
        chunk = writer.finish(np.zeros(3, np.float32))
        replay = replays.insert(replay, Chunk(**{name: jnp.asarray(x) for name, x in chunk.items()}))
    return jax.tree.map(lambda x: x[None], replay)


def test_records_are_the_whole_episodes_that_are_left() -> None:
    lengths = [4, 6, 3, 5, 6, 1, 2, 6, 4]
    records = replays.records(_store(lengths, 30), 0, 1000)
    assert 3 <= len(records) < len(lengths)  # the ring holds only the newest ones
    for record, number in zip(reversed(records), reversed(range(len(lengths))), strict=False):
        observations, actions, total = _episode(number, lengths[number])
        np.testing.assert_array_equal(record.observations, observations)
        np.testing.assert_array_equal(record.actions, actions)
        assert record.total == total


def test_of_too_many_records_some_are_chosen_evenly() -> None:
    records = replays.records(_store([4] * 8, 100), 0, 12)
    assert [record.total for record in records] == [0.0, 3.0, 6.0]


def _records(count: int) -> list[Record]:
    """Totals that depend on the first state only; the states are independent of everything."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        observations = rng.normal(size=(6, 3)).astype(np.float32)
        actions = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
        found.append(Record(observations, actions, float(observations[:-1, 0].sum())))
    return found


@pytest.fixture(scope="module")
def state() -> grd.State:
    return grd.make(CLOSED).init(jax.random.key(0), builders.SPEC)


def test_edges_are_all_on_until_the_data_can_tell(state: grd.State) -> None:
    method = grd.make(CLOSED)
    assert method.edges is not None
    assert all(np.all(block == 1) for block in method.edges(state))
    assert all(np.all(block == 1) for block in grd.find_edges(state, _records(50)).found)
    found = grd.find_edges(state, _records(300))
    assert method.edges(found).state_to_reward.tolist() == [1, 0, 0]
    assert method.edges(found).action_to_reward.tolist() == [0, 0]
    assert method.policy_mask(found).tolist() == [1, 0, 0]


def test_edges_that_lost_their_evidence_come_back(state: grd.State) -> None:
    pruned = grd.find_edges(state, _records(300))
    noise = [record._replace(total=float(i % 7)) for i, record in enumerate(_records(300))]
    assert all(np.all(block == 1) for block in grd.find_edges(pruned, noise).found)


def test_only_the_reward_network_learns_within_the_edges_found(state: grd.State) -> None:
    method = grd.make(CLOSED)
    found = state._replace(found=Edges(*(jnp.zeros_like(block) for block in state.found)))
    batch: Batch = builders.batch(0, 4, 2)
    after, metrics = jax.jit(method.update)(found, batch, jax.random.key(1))
    for before, now in zip(
        jax.tree.leaves(found.model.dynamics), jax.tree.leaves(after.model.dynamics), strict=True
    ):
        np.testing.assert_array_equal(before, now)
    # With no edge on, the reward is a constant: the input's weights cannot move, the last bias can.
    np.testing.assert_array_equal(found.model.reward.weights[0], after.model.reward.weights[0])
    assert np.any(found.model.reward.biases[-1] != after.model.reward.biases[-1])
    assert set(metrics) == {"reward_loss", *(f"{block}_on" for block in Edges._fields)}


def test_training_finds_the_exact_graph_of_the_greenhouse() -> None:
    config = preset("apportion/Greenhouse-v0", "grd", "sac")
    schedule = Schedule(
        steps=6600,
        steps_per_iteration=600,
        updates_per_iteration=1,
        warmup_steps=6600,
        evaluate_every=6600,
        evaluation_episodes=1,
        replay_steps=20_000,
        workers=0,
    )
    config = replace(config, schedule=schedule, lanes=2)
    with open_pool(config) as pool:
        *_, last = online(config, pool)
        truth = pool.spec.true_graph
    assert last.report is not None
    assert last.report.edges is not None
    assert truth is not None
    for name, block in last.report.edges.items():
        for lane in block:
            np.testing.assert_array_equal(lane, getattr(truth, name), err_msg=name)
    assert last.report.policy_mask.tolist() == [[1] * 7 + [0] * 3] * 2


def test_the_published_recipe_takes_no_such_look() -> None:
    assert grd.make(grd.Config()).revision is None
    assert Config(env=EnvConfig("x")).make_method().revision is None
