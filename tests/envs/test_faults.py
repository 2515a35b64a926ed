"""One lane's environment fails: its neighbours do what they would have done, bit for bit."""

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from actors import actor

from apportion.core.config import UserError
from apportion.envs.faults import Fault, Faults, blame
from apportion.envs.make import EnvConfig
from apportion.envs.supervisor import Pool
from builders import assert_equal
from faulty_envs import episode_seed, evaluation_seed

LANES = 3
SEEDS = [10, 11, 12]
FAILING = 1  # the lane in the middle of a worker's three
WAYS = ["raises", "leaves", "nonsense", "dies", "hangs", "spins"]


def _pool(
    how: str = "",
    seeds: list[int] | None = None,
    at: int = 3,
    *,
    workers: int = 1,
    restarts: int = 10,
    strict: bool = False,
) -> Pool:
    kwargs = json.dumps({"how": how, "seeds": seeds or [], "at": at})
    config = EnvConfig("faulty_envs:Faulty-v0", delay="2", kwargs=kwargs, timeout=0.5, restarts=restarts)
    return Pool(config, SEEDS, "tanh_gaussian", workers, Faults(LANES, restarts, strict))


def _chunks(pool: Pool, iterations: range) -> Iterator[dict[str, Any]]:
    for iteration in iterations:
        pool.start_chunk(None, 8, iteration)
        yield pool.finish_chunk()


def _assert_neighbours_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in expected:
        for lane in (0, 2):
            np.testing.assert_array_equal(found[name][lane], expected[name][lane], err_msg=name)


@pytest.mark.parametrize("how", WAYS)
def test_neighbours_in_the_same_process_do_not_notice(how: str) -> None:
    """The second episode of one lane fails, in the middle of the second chunk of two."""
    with _pool(workers=0) as calm, _pool(how, [episode_seed(11, 1)]) as pool:
        for found, expected in zip(_chunks(pool, range(4)), _chunks(calm, range(4)), strict=True):
            _assert_neighbours_equal(found, expected)
            rows, segments = int(found["rows"][FAILING]), int(found["segments"][FAILING])
            ends = found["segment_start"][FAILING, :segments] + found["segment_length"][FAILING, :segments]
            assert (ends <= rows).all()
        assert pool.faults.restarts == [0, 1, 0]
        [fault] = pool.faults.news()
        assert (fault.lane, fault.restarts) == (FAILING, 1)


@pytest.mark.parametrize(("how", "restarts"), [("writes", 1), ("forks", 0)])
def test_what_is_written_into_a_worker_s_answers_costs_its_own_lane_only(how: str, restarts: int) -> None:
    """It was the end of all; a copy of a worker answered, too."""
    with _pool(workers=0) as calm, _pool(how, [episode_seed(11, 1)], workers=LANES) as pool:
        for found, expected in zip(_chunks(pool, range(4)), _chunks(calm, range(4)), strict=True):
            _assert_neighbours_equal(found, expected)
        assert pool.faults.restarts == [0, restarts, 0]


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_of_an_episode_that_failed_only_whole_segments_stay(how: str) -> None:
    """Each is followed by the observation after its last step, and sums up its own rewards."""
    with _pool(how, [episode_seed(11, 1)]) as pool:
        stored: list[tuple[float, float]] = []  # each row's first observed number and reward
        segments: list[tuple[int, int, float]] = []
        for chunk in _chunks(pool, range(4)):
            mine = {name: array[FAILING] for name, array in chunk.items()}
            starts = len(stored) + mine["segment_start"]
            closed = zip(starts, mine["segment_length"], mine["segment_total"], strict=True)
            segments += list(closed)[: int(mine["segments"])]
            rows = zip(mine["observation"][:, 0], mine["true_reward"], strict=True)
            stored += list(rows)[: int(mine["rows"])]
        for start, length, total in segments[:-1]:
            rewards = [reward for _, reward in stored[start : start + length]]
            assert total == pytest.approx(sum(rewards), rel=1e-4)
            assert [seen for seen, _ in stored[start + 1 : start + length + 1]] == pytest.approx(rewards)


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_too_many_failures_freeze_the_lane_and_only_it(how: str) -> None:
    again = [episode_seed(11, episode, restarts) for episode in range(9) for restarts in range(4)]
    with _pool(workers=0) as calm, _pool(how, again, restarts=2) as pool:
        for found, expected in zip(_chunks(pool, range(4)), _chunks(calm, range(4)), strict=True):
            _assert_neighbours_equal(found, expected)
        assert pool.faults.frozen.keys() == {FAILING}
        assert pool.faults.restarts == [0, 2, 0]
        assert [fault.restarts for fault in pool.faults.news()] == [1, 2, None]
        assert (found["rows"][FAILING], found["segments"][FAILING]) == (0, 0)
        np.testing.assert_array_equal(found["observation"][FAILING, 0], pool.where()[FAILING]["observation"])
        assert pool.episodes(actor(2, 1, LANES), 0, 2, absent={FAILING})[FAILING] == []


def test_a_lane_goes_on_from_a_restart_as_if_it_had_never_stopped() -> None:
    failing = [episode_seed(11, 0), episode_seed(11, 2, restarts=1)]
    with _pool("raises", failing) as pool, _pool("raises", failing, workers=0) as other:
        list(_chunks(pool, range(2)))
        other.faults.restore(pool.faults.to_dict())
        other.put_back(pool.where())
        for found, expected in zip(_chunks(other, range(2, 5)), _chunks(pool, range(2, 5)), strict=True):
            assert_equal(found, expected)
        assert other.faults.restarts == pool.faults.restarts == [0, 2, 0]


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_an_evaluation_episode_that_fails_is_played_from_another_seed(how: str) -> None:
    failing = [evaluation_seed(11, 0, 1), evaluation_seed(11, 0, 1, failed=1)]
    with _pool(workers=0) as calm, _pool(how, failing) as pool:
        played, expected = (each.episodes(actor(2, 1, LANES), 0, 3) for each in (pool, calm))
        for lane in (0, 2):
            for mine, theirs in zip(played[lane], expected[lane], strict=True):
                np.testing.assert_array_equal(mine["observations"], theirs["observations"])
        seeds = [int(episode["seed"]) for episode in played[FAILING]]
        assert seeds == [evaluation_seed(11, 0, 0), evaluation_seed(11, 0, 1, 2), evaluation_seed(11, 0, 2)]
        assert pool.faults.restarts == [0, 2, 0]


def test_an_environment_that_cannot_be_put_back_at_a_resume_leaves_its_episode() -> None:
    with _pool(workers=0) as calm, _pool("dies", [episode_seed(11, 1)], at=0) as pool:
        list(_chunks(calm, range(3)))
        where = calm.where()
        [later] = _chunks(calm, range(3, 4))
        where[FAILING] = {**where[FAILING], "episode": np.asarray(1)}  # whose reset it does not survive
        pool.put_back(where)
        [found] = _chunks(pool, range(3, 4))
        _assert_neighbours_equal(found, later)
        assert pool.faults.restarts == [0, 1, 0]


def test_strict_ends_at_the_first_failure_in_one_line() -> None:
    late = r"^the environment did not answer within 0\.5 s: raise --env\.timeout"
    with pytest.raises(UserError, match=late), _pool("hangs", [episode_seed(11, 0)], strict=True) as pool:
        list(_chunks(pool, range(1)))


def test_who_cannot_start_anywhere_ends_at_once_and_in_one_lane_is_tried_again() -> None:
    seeds = [episode_seed(seed, 0) for seed in SEEDS]
    with pytest.raises(UserError, match="the motor is hot"):
        _pool("raises", seeds, at=0)
    with _pool("raises", [episode_seed(11, 0)], at=0) as pool:
        [chunk] = _chunks(pool, range(1))
        assert pool.faults.restarts == [0, 1, 0]
        assert (chunk["rows"] > 0).all()


def test_stuck_workers_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apportion.envs.supervisor.PATIENCE", 1.0)
    pool = _pool("spins", [episode_seed(seed, 0) for seed in SEEDS], workers=3)
    pool.start_chunk(None, 8, 0)
    time.sleep(0.3)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 2.5


def test_news_are_told_once_and_in_a_line() -> None:
    printed = {"the environment raised MemoryError", "the environment raised ValueError: so"}
    assert {blame(error, printed) for error in (MemoryError(), ValueError("\nso\nand so"))} == printed
    faults = Faults(2, limit=1, strict=False)
    faults.happened(1, 4, "first")
    assert faults.news() == [Fault(1, 4, "first", 1)]
    assert faults.news() == []
    faults.happened(1, 6, "second")
    assert faults.news() == [Fault(1, 6, "second (more often than --env.restarts 1 allows)", None)]
    assert (faults.frozen_by(5), faults.frozen_by(6)) == (set(), {1})
    again = Faults(2, limit=1, strict=False)
    again.restore(json.loads(json.dumps(faults.to_dict())))
    assert (again.frozen, again.restarts, again.reasons) == (faults.frozen, faults.restarts, faults.reasons)
