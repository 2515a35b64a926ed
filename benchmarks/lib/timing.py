"""How long things take: repeated, and side by side, so that noise on the machine hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

Run = Callable[[], object]
Clock = Callable[[], float]


def once(run: Run, clock: Clock = time.perf_counter) -> float:
    """Seconds of one run."""
    began = clock()
    run()
    return clock() - began


def repeated(
    run: Run, seconds: float, most: int = 50, least: int = 3, clock: Clock = time.perf_counter
) -> list[float]:
    """Seconds of each run: at least `least`, then until `seconds` are spent or there are `most`."""
    taken: list[float] = []
    while len(taken) < least or (sum(taken) < seconds and len(taken) < most):
        taken.append(once(run, clock))
    return taken


def interleaved(
    runs: Mapping[str, Run], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each run in every round; a round has each of them once, in turn."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            taken[name].append(once(run, clock))
    return taken


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """How many times longer theirs took than ours, round by round."""
    return [their / our for our, their in zip(ours, theirs, strict=True)]


def median(values: list[float]) -> float:
    return float(statistics.median(values))
