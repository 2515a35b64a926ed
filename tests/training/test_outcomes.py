"""Outcomes in any unit and from any level: what learners are paid, and what they have found."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.core.types import Record
from apportion.training.outcomes import Outcomes, measure

Floats = NDArray[np.float64]


def _linear(seen: Floats, done: Floats) -> float:
    return float((seen[:, 0] + 0.5 * done[:, 0]).sum())


def _episodes(
    earned: Callable[[Floats, Floats], float] = _linear, lengths: tuple[int, int] = (2, 12)
) -> list[Record]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(120):
        steps = int(rng.integers(*lengths))
        seen, done = rng.normal(size=(steps, 3)), rng.normal(size=(steps, 2))
        found.append(Record(seen, done, earned(seen, done), False, number))
    return found


def _changed(episodes: list[Record], factor: float, level: float) -> list[Record]:
    return [record._replace(total=factor * record.total + level) for record in episodes]


@pytest.mark.parametrize(
    "earned",
    [
        _linear,
        lambda seen, done: float((seen[:, 0] ** 2 + 3).sum()),
        lambda seen, done: float((5 * seen[:, 0] * done[:, 0]).sum()),
        lambda seen, done: float(10 * np.sum(seen[:, 1] > 1)),
    ],
)
def test_usual_outcomes_stay_as_they_are(earned: Callable[[Floats, Floats], float]) -> None:
    assert measure(_episodes(earned)) == Outcomes(1.0, 0.0, 0.0)


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e6])
def test_unusual_ones_get_a_unit_in_which_rewards_are_of_size_one(factor: float) -> None:
    found = measure(_changed(_episodes(), factor, 0.0))
    assert found.unit == pytest.approx(factor * np.sqrt(1.25), rel=0.2)
    assert (found.step, found.level) == (0.0, 0.0)


@pytest.mark.parametrize("factor", [1.0, 1e-4])
def test_a_level_that_no_step_has_earned_is_found(factor: float) -> None:
    found = measure(_changed(_episodes(), factor, 100.0 * factor))
    assert found.level == pytest.approx(100 * factor, rel=0.02)
    assert found.unit == pytest.approx(1.0 if factor == 1 else factor * np.sqrt(1.25), rel=0.2)


def test_in_episodes_of_one_length_it_is_as_good_as_a_constant_of_each_step() -> None:
    found = measure(_changed(_episodes(lengths=(10, 11)), 1.0, 1e5))
    assert found == Outcomes(1.0, pytest.approx(1e4, rel=1e-3), 0.0)


def test_a_bonus_at_a_place_where_every_episode_ends_is_that_places() -> None:
    rng = np.random.default_rng(4)
    found = []
    for number in range(300):
        walk = np.cumsum(rng.normal(size=(2000, 1)) * 0.3, axis=0)
        steps = int(np.argmax(np.abs(walk[:, 0]) > 1.5)) + 1
        found.append(Record(walk[:steps], np.zeros((steps, 1)), 100.0 - steps, False, number))
    assert measure(found).level == 0


def test_a_fine_for_an_end_is_no_level() -> None:
    fined = [
        record._replace(total=record.total - 30, terminated=True) if record.number % 10 else record
        for record in _episodes()
    ]
    assert measure(fined).level == 0
    every = [record._replace(total=record.total - 30, terminated=True) for record in _episodes()]
    assert measure(every).level == 0


@pytest.mark.parametrize("total", [0.0, 7.0])
def test_outcomes_that_are_all_alike(total: float) -> None:
    found = measure([record._replace(total=total) for record in _episodes()])
    assert np.isfinite([found.unit, found.step, found.level]).all()
    assert found.unit > 0


def test_what_is_paid_and_what_is_told_go_together() -> None:
    """Rewards that sum to what learners are paid sum to the outcome less its level, when they are told."""
    outcomes, (record, *_) = Outcomes(unit=0.01, step=3.0, level=70.0), _episodes()
    steps = len(record.actions)
    share = outcomes.paid(record).total / steps
    assert steps * (share * outcomes.unit + outcomes.step) + outcomes.level == pytest.approx(record.total)
