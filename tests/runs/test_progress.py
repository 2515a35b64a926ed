"""Progress goes to stderr only: lines where nobody watches, a bar on a terminal, nothing when quiet; and
which lanes diverge is said."""

import dataclasses
import io
import os
import pty
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.envs.make import EnvConfig
from apportion.runs.progress import ENOUGH, LASTING, Progress, Watch, over_lanes
from apportion.runs.recording import hard_for_sac
from apportion.training.settings import Config
from disks import ReaderGone


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_few_but_every_evaluation_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(100_000, lanes=2, quiet=False, clock=clock) as progress:
        for step in range(1000, 25_000, 1000):  # one second each
            clock.now += 1
            progress.metrics({"reward_loss": 0.12345})
            progress.update(step)
        progress.evaluation([10.5, 12.0], [0.91, None], [0.1, 0.2])
        progress.message("checkpoint [bold] saved")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "step 1,000/100,000 (1%)  1,000 steps/s  0:01:39 left  reward_loss 0.1235",
        "step 11,000/100,000 (11%)  1,000 steps/s  0:01:29 left  reward_loss 0.1235",
        "step 21,000/100,000 (21%)  1,000 steps/s  0:01:19 left  reward_loss 0.1235",
        "step 24,000/100,000 (24%)  1,000 steps/s  0:01:16 left  "
        "return 10.5 12  correlation 0.91 -  reward_loss 0.1235",
        "checkpoint [bold] saved",
    ]


def test_the_last_report_is_not_swallowed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(20, lanes=1, quiet=False, clock=clock) as progress:
        for step in (10, 15, 20):
            clock.now += 1
            progress.update(step)
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["10/20", "20/20"]


def test_a_resumed_run_counts_only_its_own_steps(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(10_000, lanes=1, quiet=False, start_step=9_000, clock=clock) as progress:
        progress.update(9_000)
        clock.now += 10
        progress.update(9_500)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "step 9,000/10,000 (90%)"
    assert second == "step 9,500/10,000 (95%)  50 steps/s  0:00:10 left"


def test_a_fit_that_may_end_early_says_how_long_it_takes_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(1_000, lanes=1, quiet=False, early=True, clock=clock) as progress:
        clock.now += 10
        progress.evaluation([1.0], [None], [0.5], step=100)
    said = "step 100/1,000 (10%)  10 steps/s  0:01:30 left at most  return 1  return error 0.5"
    assert capsys.readouterr().err.splitlines() == [said]


def test_without_a_true_reward_the_return_error_stands_in(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10, lanes=2, quiet=False, clock=Clock()) as progress:
        progress.evaluation([1.0, 2.0], [float("nan"), None], [0.25, 0.5])
    assert "return 1 2  return error 0.25 0.5" in capsys.readouterr().err


def test_many_lanes_are_summed_up() -> None:
    assert over_lanes([1.0, 2.0, 3.0, 4.0, float("nan"), None], lanes=6) == "mean 2.5 ± 1.118 (1 to 4)"
    assert over_lanes([1.0, float("nan")], lanes=2) == "1 -"
    assert over_lanes([None, None], lanes=2) == ""


def everything_written(master: int) -> str:
    """All that a terminal was sent, once its writer has closed it; one read may give a part only."""
    parts = []
    while True:
        try:
            part = os.read(master, 100_000)
        except OSError:  # Linux's way to say that nobody writes any more
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with Progress(1000, lanes=1, quiet=False) as progress:
            progress.metrics({"loss": 1.0})
            progress.update(250)
            progress.evaluation([7.25], [0.5], [0.1])
            progress.message("saved [step]")
    shown = everything_written(master)
    os.close(master)
    assert "━" in shown
    assert "250/1,000 steps" in shown
    assert "return 7.25  correlation 0.5" in shown
    assert "saved [step]" in shown
    assert capsys.readouterr().out == ""


def test_a_crash_inside_closes_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with pytest.raises(RuntimeError), Progress(10, lanes=1, quiet=False):
            raise RuntimeError
        assert sys.stderr is terminal
    os.close(master)


@pytest.mark.parametrize(("stream", "quiet"), [(ReaderGone(), False), (None, False), (io.StringIO(), True)])
def test_a_training_goes_on_when_nobody_reads_its_progress_and_quiet_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stream: io.StringIO | None,
    quiet: bool,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(100, lanes=1, quiet=quiet) as progress:
        progress.metrics({"loss": 1.0})
        progress.message("hello")
        progress.update(50)
        progress.evaluation([1.0], [None], [0.25])
    assert capsys.readouterr().out + (stream.getvalue() if stream is not None else "") == ""


# --- Divergence is told once for each lane; what merely learns, starts or shakes is left in peace


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


def test_each_lane_is_told_of_when_it_diverges_and_slow_growth_without_end_is_seen() -> None:
    said = _said([*[1.0] * 40, *[1e5] * 40], [*[1.0] * 60, *[1e5] * 20], [1.0] * 80)
    assert [(number, text.split()[1]) for number, text in said] == [(42, "7"), (62, "8")]
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


def test_of_a_task_that_sac_does_not_learn_it_is_said_before_the_training() -> None:
    humanoid = Config(EnvConfig("Humanoid-v4"))
    assert hard_for_sac(humanoid)
    assert not hard_for_sac(dataclasses.replace(humanoid, normalise=False))
    assert not hard_for_sac(Config(EnvConfig("Humanoid-v4"), backbone="crossq"))
    assert not hard_for_sac(Config(EnvConfig("HumanoidStandup-v4")))
