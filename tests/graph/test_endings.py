"""Dimensions that tell when an episode ends, so that the policy is not blind to it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.graph import Endings, find_endings

DIMS = 5  # a walk that ends the episode beyond ±3, what follows it with a delay, noise, a constant, a walk


def _episodes(count: int, seed: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    observations, ended = [], []
    for _ in range(count):
        walks, rows = np.zeros(2), []
        follower = 0.0
        for _ in range(60):
            rows.append([walks[0], follower, rng.normal(), 1.0, walks[1]])
            if abs(walks[0]) > 3:
                break
            follower += 0.5 * (walks[0] - follower)
            walks[0] += rng.normal(scale=0.7)
            walks[1] = 0.8 * walks[1] + rng.normal(scale=0.5)
        observations.append(np.array(rows))
        ended.append(abs(rows[-1][0]) > 3)
    return observations, np.array(ended)


@pytest.mark.parametrize("seed", range(5))
def test_what_an_end_depends_on_is_found_on_either_side(seed: int) -> None:
    found = find_endings(*_episodes(100, seed)).matters
    assert found.tolist() == [True, True, False, False, False]


def test_time_limits_are_no_ends_and_a_few_ends_cannot_be_told_from_chance() -> None:
    observations, _ = _episodes(100, 0)
    assert not find_endings(observations, np.zeros(100, np.bool_)).matters.any()
    assert find_endings(observations, np.arange(100) < 3).matters.all()


def test_of_very_many_states_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apportion.graph.endings.MAX_OTHERS", 500)
    assert find_endings(*_episodes(100, 0)).matters.tolist() == [True, True, False, False, False]


def _collisions(count: int, seed: int) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """Three walkers in a strip, and noise; it ends where the first two meet, wherever that is."""
    rng = np.random.default_rng(seed)
    observations, ended = [], []
    for _ in range(count):
        places, rows, met = rng.uniform(-2, 2, 3), [], False
        while len(rows) < 60 and not met:
            rows.append([*places, rng.normal()])
            met = len(rows) > 1 and abs(places[0] - places[1]) < 0.15
            places = np.clip(places + rng.normal(scale=0.4, size=3), -2, 2)
        observations.append(np.array(rows) * [1.0, 100.0, 1.0, 1.0] + [0.0, 7.0, 0.0, 0.0])
        ended.append(met)
    return observations, np.array(ended)


@pytest.mark.parametrize("seed", range(5))
def test_an_end_that_depends_on_two_dimensions_together_is_found_in_both(seed: int) -> None:
    assert find_endings(*_collisions(200, seed)).matters.tolist() == [True, True, False, False]


def test_what_ends_depend_on_is_remembered_when_they_have_left_the_replay() -> None:
    known = find_endings(*_collisions(200, 0))
    assert known.enough
    quiet = [np.random.default_rng(0).normal(size=(20, 4)) for _ in range(50)]
    nothing, few = (find_endings(quiet, np.arange(50) < ends) for ends in (0, 3))
    assert not nothing.matters.any()
    assert few.matters.all()
    for later in (nothing, few):
        assert known.remember(later).matters.tolist() == [True, True, False, False]
    assert Endings.unknown(4).remember(few).matters.all()
    assert Endings.unknown(4).remember(few).remember(known).matters.tolist() == [True, True, False, False]
