"""Progress of a training on stderr: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

LANES_SHOWN = 4  # more than this many are summed up
SECONDS_BETWEEN_LINES = 10.0
PACE_REPORTS = 50  # how many reports back the speed is measured

Clock = Callable[[], float]


@dataclass(frozen=True)
class Report:
    """One state of the training, ready to be shown."""

    step: int
    total: int
    pace: str  # steps per second and time left
    score: str  # returns and how good the reward is, at the last evaluation
    metrics: str
    frozen: str = ""  # how many seeds stand still

    def line(self) -> str:
        share = f"step {self.step:,}/{self.total:,} ({self.step / max(self.total, 1):.0%})"
        return "  ".join(part for part in (share, self.pace, self.score, self.metrics, self.frozen) if part)


class View(Protocol):
    def show(self, report: Report, evaluated: bool) -> None: ...
    def message(self, text: str) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Shows how a training goes, inside a `with` block. A resumed run begins at `start_step`."""

    def __init__(
        self,
        total_steps: int,
        lanes: int,
        quiet: bool,
        start_step: int = 0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._total = total_steps
        self._lanes = lanes
        self._quiet = quiet
        self._clock = clock
        self._view: View = _Silence()
        self._start = start_step
        self._marks: deque[tuple[float, int]] = deque(maxlen=PACE_REPORTS)  # (seconds, step)
        self._score = ""
        self._metrics = ""
        self._frozen = ""

    def __enter__(self) -> Self:
        self._marks.append((self._clock(), self._start))
        if not self._quiet and sys.stderr is not None:  # it is None where it was closed before the start
            on_terminal = sys.stderr.isatty()
            self._view = _Bar(self._total, self._start) if on_terminal else _Lines(self._clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(lambda view: view.close())

    def update(self, step: int) -> None:
        """Reports training up to `step`."""
        self._show(step, evaluated=False)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Shows these numbers of the training from the next report on."""
        self._metrics = "  ".join(f"{name} {_number(value)}" for name, value in values.items())

    def frozen(self, lanes: int) -> None:
        """Shows from the next report on how many seeds stand still."""
        self._frozen = f"{lanes} of {self._lanes} seeds frozen" if lanes else ""

    def evaluation(
        self,
        returns: Sequence[float],
        correlation: Sequence[float | None],
        return_error: Sequence[float],
        success: Sequence[float] = (),
    ) -> None:
        """Reports an evaluation [L]: with the return error, where no lane has a true reward to compare, and
        with the success rate, where the environment reports one.

        The training may have gone on since: the step shown is its own."""
        known = over_lanes(correlation, self._lanes) != ""
        quality = ("correlation", correlation) if known else ("return error", return_error)
        scores = (("return", returns), ("success", success), quality)
        parts = [(name, over_lanes(values, self._lanes)) for name, values in scores]
        self._score = "  ".join(f"{name} {text}" for name, text in parts if text)
        self._show(self._marks[-1][1], evaluated=True)

    def message(self, text: str) -> None:
        """Shows a line of text above the bar."""
        self._tell(lambda view: view.message(text))

    def _show(self, step: int, evaluated: bool) -> None:
        self._marks.append((self._clock(), step))
        report = Report(step, self._total, self._pace(), self._score, self._metrics, self._frozen)
        self._tell(lambda view: view.show(report, evaluated))

    def _tell(self, what: Callable[[View], None]) -> None:
        """Training goes on if nobody reads any more (`2>&1 | head`), or the disk of a log is full."""
        try:
            what(self._view)
        except OSError:
            self._view = _Silence()

    def _pace(self) -> str:
        """Speed over the last reports of this process, and the time that the rest will take."""
        (began, first), (now, last) = self._marks[0], self._marks[-1]
        if now <= began or last <= first:
            return ""
        rate = (last - first) / (now - began)
        return f"{rate:,.0f} steps/s  {_duration((self._total - last) / rate)} left"


def over_lanes(values: Sequence[float | None], lanes: int) -> str:
    """Values of a few lanes one by one, of many as `mean 3.1 ± 0.2 (2.8 to 3.4)`; empty if none is known."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    if lanes <= LANES_SHOWN:
        return " ".join(_number(value) for value in values)
    mean = math.fsum(known) / len(known)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
    return f"mean {_number(mean)} ± {_number(spread)} ({_number(min(known))} to {_number(max(known))})"


def over_some(values: NDArray[np.float32]) -> float:
    """The mean over the lanes that have a number."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


class _Silence:
    def show(self, report: Report, evaluated: bool) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """A line now and then, and one for each evaluation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._printed_at = -math.inf
        self._waiting: Report | None = None  # the newest report, if it was too soon to print it

    def show(self, report: Report, evaluated: bool) -> None:
        now = self._clock()
        if not evaluated and now - self._printed_at < SECONDS_BETWEEN_LINES:
            self._waiting = report
            return
        self._printed_at, self._waiting = now, None
        self.message(report.line())

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._waiting is not None:
            self.message(self._waiting.line())


class _Bar:
    """Rich's bar, on stderr; what is printed to stdout meanwhile stays there."""

    def __init__(self, total: int, start: int) -> None:
        steps = "{task.completed:,.0f}/{task.total:,.0f} steps"
        texts = (steps, "{task.fields[pace]}", "{task.fields[score]}", "{task.fields[frozen]}")
        self._rich = RichProgress(
            BarColumn(bar_width=24),
            *(TextColumn(text, markup=False) for text in texts),
            console=Console(stderr=True),
            refresh_per_second=4,
            redirect_stdout=False,
        )
        self._task = self._rich.add_task("", total=total, completed=start, pace="", score="", frozen="")
        self._rich.start()

    def show(self, report: Report, evaluated: bool) -> None:
        self._rich.update(
            self._task, completed=report.step, pace=report.pace, score=report.score, frozen=report.frozen
        )

    def message(self, text: str) -> None:
        self._rich.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._rich.stop()


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
