"""The trainer's own program on made-up data of any size: it runs as on real data, in the memory and with the
operations that were computed for it."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apportion.core.types import Batch, Sampling
from apportion.data import replay as replays
from apportion.methods import grd
from builders import lane
from lib import flops, memory, updates, workload
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


# --- What a lane needs: computed from shapes, and so on a real allocation


HUMANOID = workload.made_up_spec(workload.SIZES["Humanoid"])


def test_shapes_say_what_a_replay_really_takes_1700_megabytes_for_a_million_steps_of_a_humanoid() -> None:
    """On a replay of 10,000 steps: arrays that exist, byte for byte."""
    assert memory.replay_bytes(HUMANOID, 1_000_000) <= 1.7e9
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


# --- Operations are counted in the program itself: right where the answer is known, and as XLA counts them


@pytest.mark.parametrize("structure", ["gradient", "closed-form"])
def test_xla_counts_the_same_of_one_update_and_a_little_more(structure: str) -> None:
    """A little: the work element by element. It takes the body of a loop once, we as often as it runs."""
    method, works = replace(workload.PUBLISHED, structure=structure), []
    for count in (1, 3):
        config = workload.settings("grd", method, updates=count)
        works.append(workload.shapes(config, workload.made_up_spec(Size(17, 6))))
    once, thrice = (flops.products(work.program, *work.arguments) for work in works)
    by_xla = works[0].program.lower(*works[0].arguments).cost_analysis()["flops"]
    assert 1.0 <= by_xla / once < 1.15
    assert 2.5 < thrice / once <= 3.0  # a method may not learn at each of them
