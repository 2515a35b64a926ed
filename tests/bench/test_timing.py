"""Noise on the machine hits all that is compared: repetitions are interleaved."""

import itertools

import pytest

from lib import timing


def test_everyone_runs_once_in_each_round_and_ratios_compare_within_it() -> None:
    order: list[str] = []
    taken = timing.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}
    # A machine that slows down by ten between two rounds changes no ratio.
    assert timing.ratios([0.1, 1.0], [0.2, 2.0]) == [2.0, 2.0]


@pytest.mark.parametrize(("each", "limit", "count"), [(0.25, 1.25, 5), (60.0, 1.0, 3), (0.0, 60.0, 7)])
def test_a_run_is_repeated_until_its_time_is_spent_but_neither_once_nor_forever(
    each: float, limit: float, count: int
) -> None:
    moments = itertools.cycle([0.0, each])
    now = itertools.accumulate(moments)
    assert timing.repeated(lambda: None, limit, most=7, clock=lambda: next(now)) == [each] * count
