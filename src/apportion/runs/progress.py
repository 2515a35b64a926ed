"""Progress of a training on stderr: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from apportion.core.terminal import console, inert, say
from apportion.envs.faults import Fault, Faults

_SHOWN = ("{task.completed:,.0f}/{task.total:,.0f} steps", "{task.fields[pace]}", "{task.fields[score]}")


class Progress:
    """Shows how a training goes, inside a `with` block. A resumed run begins at `start_step`; where one may
    end `early`, the time that is left is the most."""

    def __init__(
        self,
        total_steps: int,
        lanes: int,
        quiet: bool,
        start_step: int = 0,
        early: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._lanes, self._start, self._clock = total_steps, lanes, start_step, clock
        self._most = " at most" if early else ""
        self._silent = quiet or sys.stderr is None  # it is None where it was closed before the start
        self._bar: RichProgress | None = None
        # Seconds and step of as many reports as the speed is measured over.
        self._marks: deque[tuple[float, int]] = deque(maxlen=50)
        self._score = self._metrics = self._frozen = ""
        self._printed_at = -math.inf
        self._waiting = ""  # the newest line, if it was too soon to print it

    def __enter__(self) -> Self:
        self._marks.append((self._clock(), self._start))
        if not self._silent and sys.stderr.isatty():
            # What is printed to stdout meanwhile stays there.
            self._bar = RichProgress(
                BarColumn(bar_width=24),
                *(TextColumn(text, markup=False) for text in (*_SHOWN, "{task.fields[frozen]}")),
                console=console(stderr=True),
                refresh_per_second=4,
                redirect_stdout=False,
            )
            self._task = self._bar.add_task(
                "", total=self._total, completed=self._start, pace="", score="", frozen=""
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting:
            self.message(self._waiting)
        if self._bar is not None:
            self._tell(self._bar.stop)

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
        step: int | None = None,
    ) -> None:
        """Reports an evaluation [L]: with the return error, where no lane has a true reward to compare, and
        with the success rate, where the environment reports one.

        The training may have gone on since: the step shown is its own, unless this one is given."""
        known = over_lanes(correlation, self._lanes) != ""
        quality = ("correlation", correlation) if known else ("return error", return_error)
        scores = (("return", returns), ("success", success), quality)
        parts = [(name, over_lanes(values, self._lanes)) for name, values in scores]
        self._score = "  ".join(f"{name} {text}" for name, text in parts if text)
        self._show(self._marks[-1][1] if step is None else step, evaluated=True)

    def message(self, text: str) -> None:
        """Shows a line of text, above the bar if there is one."""
        bar = self._bar
        self._tell(lambda: say(text) if bar is None else bar.console.print(inert(text), highlight=False))

    def _show(self, step: int, evaluated: bool) -> None:
        now = self._clock()
        self._marks.append((now, step))
        pace, bar = "", self._bar
        began, first = self._marks[0]
        if now > began and step > first:  # speed over these reports, and the time that the rest will take
            rate = (step - first) / (now - began)
            minutes, seconds = divmod(round((self._total - step) / rate), 60)
            pace = f"{rate:,.0f} steps/s  {minutes // 60}:{minutes % 60:02d}:{seconds:02d} left{self._most}"
        if bar is not None:
            facts: dict[str, Any] = {"pace": pace, "score": self._score, "frozen": self._frozen}
            self._tell(lambda: bar.update(self._task, completed=step, **facts))
            return
        share = f"step {step:,}/{self._total:,} ({step / max(self._total, 1):.0%})"
        parts = (share, pace, self._score, self._metrics, self._frozen)
        self._waiting = "  ".join(part for part in parts if part)
        if evaluated or now - self._printed_at >= 10:  # seconds
            self._printed_at = now
            self.message(self._waiting)
            self._waiting = ""

    def _tell(self, what: Callable[[], object]) -> None:
        """Training goes on if nobody reads any more (`2>&1 | head`), or the disk of a log is full."""
        try:
            if not self._silent:
                what()
        except OSError:
            self._silent = True


def over_lanes(values: Sequence[float | None], lanes: int) -> str:
    """Values of up to four lanes one by one, of more as `mean 3.1 ± 0.2 (2.8 to 3.4)`; empty without any."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    if lanes <= 4:
        return " ".join(_number(value) for value in values)
    mean, spread = float(np.mean(known)), float(np.std(known))
    return f"mean {_number(mean)} ± {_number(spread)} ({_number(min(known))} to {_number(max(known))})"


def over_some(values: NDArray[np.float32]) -> float:
    """The mean over the lanes that have a number."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


# --- Lanes that had faults, in words


def fault_facts(faults: Faults, seeds: Sequence[int], steps_per_iteration: int) -> list[dict[str, Any]]:
    """One entry for each lane that had a fault: how often it was restarted, and since when it is frozen."""
    found = []
    for lane, reason in enumerate(faults.reasons):
        if reason is not None:
            since = _step(faults.frozen[lane], steps_per_iteration) if lane in faults.frozen else None
            entry = {"lane": lane, "seed": seeds[lane], "restarts": faults.restarts[lane]}
            found.append({**entry, "frozen_since": since, "reason": reason})
    return found


def fault_warnings(
    news: Sequence[Fault], limit: int, seeds: Sequence[int], steps_per_iteration: int
) -> list[str]:
    """A warning for each fault, when it has just happened."""
    said = []
    for fault in news:
        seed, step = seeds[fault.lane], _step(fault.iteration, steps_per_iteration)
        if fault.restarts is None:
            said.append(f"warning: seed {seed} is frozen from step {step:,} on: {fault.reason}")
        else:
            dropped = f"episode dropped, environment restarted ({fault.restarts} of {limit})"
            said.append(f"warning: seed {seed}, by step {step:,}: {fault.reason}; {dropped}")
    return said


def _step(iteration: int, steps_per_iteration: int) -> int:
    """The first step whose line is without the lane."""
    return (iteration + 1) * steps_per_iteration


# --- Critics whose loss explodes


GROWTH = 1_000.0  # times its median, at which a critic's loss has exploded
ENOUGH = 20  # lines of the log before which nothing is usual
LASTING = 3  # lines in a row: one bad batch is no divergence


class Watch:
    """Follows the critics' losses of all lanes, and has something to say when one diverges."""

    def __init__(self, seeds: Sequence[int], normalised: bool) -> None:
        self.seeds = seeds
        self.losses: list[NDArray[np.float64]] = []  # [L] of each line so far
        self.exploded: set[int] = set()
        self.remedy = "a smaller --backbone.learning-rate may help"
        if not normalised:
            self.remedy += ", or to leave out --no-normalise"

    def remember(self, entries: list[dict[str, Any]]) -> None:
        """What a resumed run logged before."""
        before = [entry["critic_loss"] for entry in entries if "critic_loss" in entry]
        self.losses = [np.array(lanes, np.float64) for lanes in before]  # None becomes NaN

    def look(self, step: int, metrics: dict[str, NDArray[Any]]) -> list[str]:
        """What to say after one more line."""
        if "critic_loss" not in metrics:
            return []
        self.losses.append(np.array(metrics["critic_loss"], np.float64))
        if len(self.losses) < ENOUGH + LASTING:
            return []
        # Of all lines so far: a loss that grows slowly, but without end, leaves their median behind as well.
        usual = np.median(np.nan_to_num(self.losses[:-LASTING], nan=np.inf), axis=0)
        now = np.min(self.losses[-LASTING:], axis=0)
        # False where a number is gone: such a lane is frozen, or has not begun to learn. A loss below 100 may
        # be a first reward that was found: learners get rewards of size 0.1 to 10.
        large = now > np.maximum(GROWTH * usual, 100.0)
        new = sorted(set(np.flatnonzero(large).tolist()) - self.exploded)
        self.exploded |= set(new)
        return [
            f"seed {self.seeds[lane]} diverges: by step {step} its critic's loss is {now[lane]:.2g}, "
            f"{now[lane] / max(usual[lane], 1e-30):,.0f} times its median; {self.remedy}"
            for lane in new
        ]
