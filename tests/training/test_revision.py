"""Now and then a method looks at many segments at once: GRD's closed-form structure does."""

from dataclasses import replace

import builders
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.types import Batch, Edges, Record, Revision
from apportion.data import replay as replays
from apportion.data.replay import Chunk
from apportion.envs.lane import _ChunkWriter
from apportion.envs.make import EnvConfig
from apportion.graph import additive
from apportion.methods import grd
from apportion.training.loop import _looks, online, open_pool
from apportion.training.presets import preset
from apportion.training.settings import Config, Schedule

CLOSED = grd.Config(hidden=(8, 8), structure="closed-form", base=False, segments=2)
HYBRID = replace(CLOSED, structure="hybrid", initial_edge_logit=3.0)
BASED = replace(CLOSED, base=True)


def test_a_look_is_due_each_time_the_segments_have_grown_enough() -> None:
    counts = np.array([0, 1, 99, 100, 199, 200, 399, 400, 1600])
    doubling = Revision(lambda state, records, segments: state, 100, 2.0, 1)
    assert _looks(counts, doubling).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 5]
    finer = doubling._replace(first=18.75, growth=2 ** (1 / 3))
    assert _looks(np.array([18, 19, 23, 24, 149, 150, 300]), finer).tolist() == [0, 1, 1, 2, 9, 10, 13]


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
    return replay


def test_records_are_the_whole_episodes_that_are_left() -> None:
    lengths = [4, 6, 3, 5, 6, 1, 2, 6, 4]
    records = replays.records(_store(lengths, 30), 1000)
    assert 3 <= len(records) < len(lengths)  # the ring holds only the newest ones
    for record, number in zip(reversed(records), reversed(range(len(lengths))), strict=False):
        observations, actions, total = _episode(number, lengths[number])
        np.testing.assert_array_equal(record.observations, observations)
        np.testing.assert_array_equal(record.actions, actions)
        assert record.total == total


@pytest.mark.parametrize(("capacity", "rows"), [(100, 64), (40, 40), (30, 30)])
def test_one_lane_is_cut_to_what_it_holds(capacity: int, rows: int) -> None:
    lengths = [4, 6, 3, 5, 6, 1, 2, 6]  # 41 rows
    other, stored = _store([1], capacity), _store(lengths, capacity)
    lane = replays.of_lane(jax.tree.map(lambda *x: jnp.stack(x), other, stored), 1)
    assert len(lane.paid) == len(lane.segment_total) == rows
    for found, expected in zip(replays.records(lane, 1000), replays.records(stored, 1000), strict=True):
        np.testing.assert_array_equal(found.observations, expected.observations)
        np.testing.assert_array_equal(found.actions, expected.actions)
        assert (found.total, found.terminated) == (expected.total, expected.terminated)


def test_of_too_many_records_some_are_chosen_evenly() -> None:
    records = replays.records(_store([4] * 8, 100), 12)
    assert [record.total for record in records] == [0.0, 3.0, 6.0]


def _records(count: int) -> list[Record]:
    """Totals that depend on the first state only; the states are independent of everything."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        observations = rng.normal(size=(6, 3)).astype(np.float32)
        actions = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
        found.append(Record(observations, actions, float(observations[:-1, 0].sum()), False))
    return found


@pytest.fixture(scope="module")
def state() -> grd.State:
    return grd.make(CLOSED).init(jax.random.key(0), builders.SPEC)


def test_edges_are_all_on_until_the_data_can_tell(state: grd.State) -> None:
    method = grd.make(CLOSED)
    assert method.edges is not None
    assert all(np.all(block == 1) for block in method.edges(state))
    assert all(np.all(block == 1) for block in grd.find_edges(state, _records(50), CLOSED).found)
    found = grd.find_edges(state, _records(300), CLOSED)
    assert method.edges(found).state_to_reward.tolist() == [1, 0, 0]
    assert method.edges(found).action_to_reward.tolist() == [0, 0]
    assert method.policy_mask(found).tolist() == [1, 0, 0]


def test_the_policy_also_sees_what_ends_episodes(state: grd.State) -> None:
    records = [record._replace(terminated=bool(record.observations[-1, 1] > 0.5)) for record in _records(300)]
    found = grd.find_edges(state, records, CLOSED)
    assert found.ends.tolist() == [0, 1, 0]
    assert grd.make(CLOSED).edges(found).state_to_reward.tolist() == [1, 0, 0]
    assert grd.make(CLOSED).policy_mask(found).tolist() == [1, 1, 0]


def test_records_know_whether_they_ended_by_themselves() -> None:
    replay = _store([4, 3, 5], 100)
    replay = replay._replace(terminated=replay.terminated.at[4 + 1 + 3 - 1].set(True))
    assert [record.terminated for record in replays.records(replay, 1000)] == [False, True, False]


def test_edges_that_lost_their_evidence_come_back(state: grd.State) -> None:
    pruned = grd.find_edges(state, _records(300), CLOSED)
    noise = [record._replace(total=float(i % 7)) for i, record in enumerate(_records(300))]
    assert all(np.all(block == 1) for block in grd.find_edges(pruned, noise, CLOSED).found)


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
    report = last.reports[-1]
    assert report.edges is not None
    assert truth is not None
    for name, block in report.edges.items():
        for lane in block:
            np.testing.assert_array_equal(lane, getattr(truth, name), err_msg=name)
    assert report.policy_mask.tolist() == [[1] * 7 + [0] * 3] * 2


def test_the_published_recipe_takes_no_such_look() -> None:
    assert grd.make(grd.Config(structure="gradient", base=False)).revision is None
    assert Config(env=EnvConfig("x")).make_method().revision is not None


# --- Hysteresis, hybrid edges, and the reward fitted in closed form


def test_an_edge_goes_only_when_its_absence_is_certain() -> None:
    found, confidence = np.array([True, False, False]), np.array([0.3, 0.7, 0.9])
    for before, after in (([1.0, 1, 1], [1, 1, 0]), ([0.0, 0, 0], [1, 0, 0])):
        assert grd.keep(jnp.asarray(before), found, confidence).tolist() == after


def test_hybrid_sets_the_logits_and_forgets_where_they_were_heading() -> None:
    method = grd.make(HYBRID)
    state = method.init(jax.random.key(0), builders.SPEC)
    state, _ = jax.jit(method.update)(state, builders.batch(0, 4, 2), jax.random.key(1))
    found = grd.find_edges(state, _records(300), HYBRID)
    np.testing.assert_allclose(found.model.edges.state_to_reward, [3, -3, -3])
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(found.edge_optimiser.moments))
    assert method.policy_mask(found).tolist() == [1, 0, 0]
    after, metrics = jax.jit(method.update)(found, builders.batch(0, 4, 2), jax.random.key(1))
    assert np.any(after.model.edges.state_to_reward != found.model.edges.state_to_reward)
    assert "dynamics_loss" in metrics


def test_the_additive_reward_is_fitted_at_every_look_and_the_edges_when_segments_have_doubled() -> None:
    method = grd.make(BASED)
    assert method.revision is not None
    state = method.init(jax.random.key(0), builders.SPEC)
    early = method.revision.revise(state, _records(40), 40)
    assert int(early.looked) == 0
    assert np.any(early.base.weights != 0)
    assert np.all(early.found.state_to_reward == 1)
    first = method.revision.revise(early, _records(300), 300)
    assert int(first.looked) == 300
    assert first.found.state_to_reward.tolist() == [1, 0, 0]
    assert not np.any(first.base.weights[1:])  # what has no edge has no say
    assert int(method.revision.revise(first, _records(300), 599).looked) == 300
    assert int(method.revision.revise(first, _records(300), 600).looked) == 600


def test_the_network_learns_what_the_additive_reward_leaves() -> None:
    """In units of its error; both together are the reward."""
    method = grd.make(BASED)
    state = method.init(jax.random.key(0), builders.SPEC)
    state = state._replace(base=state.base._replace(offset=jnp.asarray(2.0), error=jnp.asarray(0.5)))
    steps = builders.transitions(0, 6)
    x = jnp.concatenate([steps.observation, steps.action], axis=1)
    rest = grd.predict_rest(state.model.reward, state.found, x)
    np.testing.assert_allclose(method.reward(state, steps), 2 + 0.5 * rest, rtol=1e-6)
    segments = builders.segments(1, 4)
    lengths = segments.length.astype(jnp.float32)
    plain = segments._replace(total=(segments.total - 2.0 * lengths) / 0.5)
    expected = grd.rest_loss(state.model.reward, state.found, additive.zero(5), plain)
    found = grd.rest_loss(state.model.reward, state.found, state.base, segments)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
