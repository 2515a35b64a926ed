"""Noise on the machine hits all that is compared: repetitions are interleaved."""

from collections.abc import Callable, Iterator

from lib import timing


def clock_of(*seconds: float) -> Callable[[], float]:
    """A clock that has moved on by the next of these each time it is looked at."""
    left: Iterator[float] = iter(seconds)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += next(left)
        return now

    return clock


def test_everyone_runs_once_in_each_round() -> None:
    order: list[str] = []
    taken = timing.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}


def test_a_run_is_repeated_until_its_time_is_spent() -> None:
    clock = clock_of(*[0.0, 0.25] * 10)
    assert timing.repeated(lambda: None, seconds=1.25, clock=clock) == [0.25] * 5


def test_however_slow_it_is_repeated_a_little() -> None:
    clock = clock_of(*[0.0, 60.0] * 10)
    assert timing.repeated(lambda: None, seconds=1.0, least=3, clock=clock) == [60.0] * 3


def test_however_fast_it_comes_to_an_end() -> None:
    assert len(timing.repeated(lambda: None, seconds=60.0, most=7)) == 7


def test_ratios_compare_within_a_round() -> None:
    """A machine that slows down by ten between two rounds changes no ratio."""
    assert timing.ratios([0.1, 1.0], [0.2, 2.0]) == [2.0, 2.0]
