"""Divergence is told once for each lane; what merely learns, starts or shakes is left in peace."""

import numpy as np
from numpy.typing import NDArray

from apportion.runs.progress import ENOUGH, LASTING, Watch


def _said(*lanes: list[float], normalised: bool = True, watch: Watch | None = None) -> list[tuple[int, str]]:
    """All that is said of critics' losses over lines of the log, with the line's number."""
    watch = watch or Watch([7 + lane for lane in range(len(lanes))], normalised)
    losses: NDArray[np.float64] = np.array(lanes).T
    return [
        (number, text)
        for number, line in enumerate(losses)
        for text in watch.look(100 * number, {"critic_loss": line, "value": np.zeros(len(line))})
    ]


def _shaking(length: int) -> list[float]:
    return (2 * np.exp(np.random.default_rng(0).normal(size=length))).tolist()


def test_a_loss_a_thousand_times_its_median_is_told_once_with_seed_step_and_remedy() -> None:
    usual = _shaking(60)
    [(number, text)] = _said([*usual, *[2.7e7] * 20], _shaking(80))
    assert number == 60 + LASTING - 1
    assert text.startswith(f"seed 7 diverges: by step {100 * number} its critic's loss is 2.7e+07, ")
    assert text.endswith(" times its median; a smaller --backbone.learning-rate may help")
    assert "\n" not in text


def test_each_lane_is_told_of_when_it_diverges() -> None:
    said = _said([*[1.0] * 40, *[1e5] * 40], [*[1.0] * 60, *[1e5] * 20], [1.0] * 80)
    assert [(number, text.split()[1]) for number, text in said] == [(42, "7"), (62, "8")]


def test_slow_growth_without_end_is_seen() -> None:
    said = _said([10 ** (number / 100) for number in range(1000)])
    assert len(said) == 1


def test_nothing_is_said_of_a_start_a_spike_a_tiny_loss_learning_or_numbers_that_are_gone() -> None:
    """A lane without a number is frozen, which is told elsewhere."""
    start = [1e-3] * (ENOUGH - 5) + [5.0] * 100
    spike = [*_shaking(60), 1e6, *_shaking(59)]
    tiny = [1e-9] * 60 + [1e-2] * 60
    found = [1e-6] * 60 + [20.0] * 60  # the first reward of a sparse task
    learning = np.linspace(0.01, 100, 115).tolist()
    gone = [*[1.0] * 60, *[np.nan] * 55]
    assert _said(*(lane[:115] for lane in (start, spike, tiny, found, learning, gone))) == []


def test_who_asked_for_raw_units_is_told_of_them() -> None:
    [(_, text)] = _said([*[1.0] * 40, *[1e5] * 5], normalised=False)
    assert text.endswith("or to leave out --no-normalise")


def test_a_resumed_run_remembers_what_was_usual() -> None:
    watch = Watch([0], normalised=True)
    entries = [{"step": step, "kind": "train", "critic_loss": [1.0]} for step in range(39)]
    watch.remember(
        [*entries, {"step": 40, "kind": "eval"}, {"step": 41, "kind": "train", "critic_loss": [None]}]
    )
    assert watch.losses[-1].shape == (1,)
    watch.losses.pop()
    assert [number for number, _ in _said([1e5] * 5, watch=watch)] == [LASTING - 1]
