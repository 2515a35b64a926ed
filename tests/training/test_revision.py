"""Now and then a method looks at many segments at once: GRD's closed-form structure does."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.core.spec import BLOCKS
from apportion.data import replay as replays
from apportion.data.replay import Chunk
from apportion.envs.lane import ChunkWriter
from apportion.envs.make import EnvConfig
from apportion.training import scaling
from apportion.training.loop import online, open_pool, start
from apportion.training.presets import preset
from apportion.training.revisions import Reviser, reached
from apportion.training.settings import Config, Schedule


def test_a_look_is_due_each_time_the_segments_have_grown_enough() -> None:
    counts = np.array([0, 1, 99, 100, 199, 200, 399, 400, 1600])
    assert reached(counts, 100, 2.0).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 5]
    finer = np.array([18, 19, 23, 24, 149, 150, 300])
    assert reached(finer, 18.75, 2 ** (1 / 3)).tolist() == [0, 1, 1, 2, 9, 10, 13]


def test_units_are_measured_whenever_grd_looks() -> None:
    """Otherwise its additive reward would be fitted in units that have passed."""
    revision = Config(env=EnvConfig("x")).make_method().revision
    assert revision is not None
    counts = np.arange(1, 5000)
    looks = np.flatnonzero(np.diff(reached(counts, revision.first, revision.growth)))
    measurements = np.flatnonzero(np.diff(reached(counts, scaling.FIRST, scaling.GROWTH)))
    assert set(looks) <= set(measurements)
    assert reached(np.array([0, 1]), scaling.FIRST, scaling.GROWTH)[1] > 0  # one segment is enough


def _episode(number: int, length: int) -> tuple[np.ndarray, np.ndarray, float]:
    observations = 100 * number + np.arange(3 * (length + 1), dtype=np.float32).reshape(length + 1, 3)
    return observations, np.full((length, 2), number / 100, np.float32), float(number)


def _store(lengths: list[int], capacity: int) -> replays.Replay:
    replay = replays.init(builders.SPEC, capacity)
    for number, length in enumerate(lengths):
        observations, actions, total = _episode(number, length)
        writer = ChunkWriter(6, 3, 2)
        for t in range(length):
            writer.step(observations[t], actions[t], 0.0, 0.0, False)
        writer.segment(length, total, length)
        writer.final(observations[-1])
        chunk = writer.finish(np.zeros(3, np.float32))
        replay = replays.insert(replay, Chunk(**{name: jnp.asarray(x) for name, x in chunk.items()}))
    return replay


def test_records_are_the_whole_episodes_that_are_left_or_of_too_many_some_that_are_chosen_evenly() -> None:
    lengths = [4, 6, 3, 5, 6, 1, 2, 6, 4]
    records = replays.records(_store(lengths, 30), 1000)
    assert 3 <= len(records) < len(lengths)  # the ring holds only the newest ones
    for record, number in zip(reversed(records), reversed(range(len(lengths))), strict=False):
        observations, actions, total = _episode(number, lengths[number])
        np.testing.assert_array_equal(record.observations, observations)
        np.testing.assert_array_equal(record.actions, actions)
        assert record.total == total
    records = replays.records(_store([4] * 8, 100), 12)
    assert [record.total for record in records] == [0.0, 3.0, 6.0]


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


SCHEDULE = Schedule(6600, 600, 1, evaluate_every=6600, replay_steps=20_000, evaluation_episodes=1, workers=0)


def test_training_finds_the_exact_graph_of_the_greenhouse() -> None:
    config = preset("apportion/Greenhouse-v0", "grd", "sac")
    # Edges are found without any update.
    schedule = replace(SCHEDULE, warmup_steps=7200)
    config = replace(config, schedule=schedule, lanes=2)
    with open_pool(config) as pool:
        *_, last = online(config, pool)
        truth = pool.spec.true_graph
    report = last.reports[-1]
    assert truth is not None
    for name in BLOCKS:
        for lane in report.beliefs[name]:
            np.testing.assert_array_equal(lane, getattr(truth, name), err_msg=name)


def test_a_training_that_stops_while_a_look_is_awaited_goes_on_as_if_it_had_not() -> None:
    schedule = replace(SCHEDULE, steps=7800, evaluate_every=7800, warmup_steps=1200)
    config = replace(preset("apportion/Greenhouse-v0", "grd", "sac"), schedule=schedule, lanes=2)
    with open_pool(config) as pool:
        for snapshot in online(config, pool):
            if snapshot.iteration == 9:
                saved = jax.device_get(snapshot.save())
        straight = jax.device_get(snapshot.save())
    assert saved.agent.awaited.at.tolist() == [10, 10]
    assert saved.agent.method.looked.searched.tolist() == [0, 0]
    assert straight.agent.method.looked.searched.tolist() == [150, 150]
    with open_pool(config) as pool:
        pool.put_back(saved.where)
        *_, last = online(config, pool, saved)
        resumed = jax.device_get(last.save())
    jax.tree.map(np.testing.assert_array_equal, resumed.agent, straight.agent)


def test_whoever_looks_does_so_in_units_measured_then() -> None:
    """Also where looks and measurements fall due at different times, as a method's own marks may have it."""
    config = Config(EnvConfig("x"), "grd", lanes=1)
    reviser = Reviser(config)
    assert reviser.revision is not None
    reviser.revision = reviser.revision._replace(first=20.0, growth=10.0)
    agent, _ = start(config, builders.SPEC)
    replay = jax.tree.map(lambda x: x[None], _store([4] * 20, 200))
    counts = (np.array([19]), np.array([20]))
    assert [each.tolist() for each in reviser._due(1000, *counts)] == [[True], [False]]
    agent = reviser.revise(agent, replay, 1000, *counts)
    reviser.close()
    rows = np.concatenate([_episode(number, 4)[0] for number in range(20)])
    assert agent.awaited is not None
    assert agent.awaited.scaling is not None
    np.testing.assert_allclose(agent.awaited.scaling.mean[0], rows.mean(axis=0), rtol=0.05)
