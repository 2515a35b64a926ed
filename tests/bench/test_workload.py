"""The trainer's own program runs on made-up data of any size, as it would on real data."""

import jax
import numpy as np
import pytest

from apportion.core.types import Batch, Sampling
from apportion.data import replay as replays
from apportion.methods import grd
from builders import lane
from lib import updates, workload
from lib.updates import Limits
from lib.workload import Size

pytestmark = pytest.mark.slow

SPEC = workload.made_up_spec(Size(4, 2), steps=20)
SMALL = grd.Config(hidden=(8,), segments=2, update_every=1)


def test_the_replay_is_full_of_whole_episodes() -> None:
    work = workload.make(workload.settings("grd", SMALL, lanes=2, updates=3, replay_steps=400), SPEC)
    replay = lane(jax.device_get(work.replay), 1)
    assert int(replay.segments - replay.oldest) >= 400 // 20 - 1

    @jax.jit
    def sample(replay: replays.Replay, key: jax.Array) -> Batch:
        drawn = replays.draw(replay, key, Sampling(segments=8), 64, 1)
        return replays.gather(replay, lane(drawn, 0), SPEC.max_segment_steps)

    batch = sample(replay, jax.random.key(0))
    assert batch.segments is not None
    assert np.asarray(batch.segments.mask).all()
    assert np.asarray(batch.segments.observations).std() == pytest.approx(1, abs=0.1)


def test_calls_change_the_agent_and_leave_the_data_alone() -> None:
    work = workload.make(workload.settings("oracle", updates=2, replay_steps=400), SPEC)
    segments = int(work.replay.segments[0])
    before = np.asarray(work.agent.backbone.actor.weights[0])
    agent, replay, metrics, *_ = work.program(*work.arguments)
    assert int(replay.segments[0]) == segments
    assert not np.array_equal(before, agent.backbone.actor.weights[0])
    assert all(np.isfinite(np.asarray(metric)).all() for metric in metrics.values())


def test_a_row_says_what_it_measured() -> None:
    row = updates.measure("oracle", None, Size(4, 2), 2, peak=1e18, limits=Limits(1e-9, 0.05, 60.0))
    assert row["milliseconds_range"][0] <= row["milliseconds"] <= row["milliseconds_range"][1]
    assert row["lane_updates_per_second"] == pytest.approx(2e3 / row["milliseconds"])
    assert 0 < row["share_of_peak"] < 1
    assert row["compile_seconds"] > 0


def test_backbones_that_learn_from_the_replay_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "measure", lambda *args, backbone: {"measured": backbone})
    rows = list(updates.of_backbones((1,), 1e9, lambda line: None))
    assert [row["backbone"] for row in rows] == ["sac", "crossq", "simba", "flashsac", "td3", "ddpg"]
    assert all(row["measured"] == row["backbone"] for row in rows)
