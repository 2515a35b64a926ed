"""How all jobs stand, on stderr: a live table on a terminal, a line for each change elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from apportion.core.terminal import console, inert, say
from apportion.front.sweep.folder import Standing, State

ROWS = 30  # of the live table
SECONDS_BETWEEN_LINES = 60.0  # about a job that is still at work

_STYLES = {"running": "bold", "finished": "green", "failed": "red", "stopped": "yellow", "waiting": "dim"}
_FIRST: tuple[State, ...] = ("running", "failed", "stopped", "waiting", "finished")


class Board:
    """Shows standings, inside a `with` block; nothing when quiet."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._silent = quiet or sys.stderr is None  # it is None where it was closed before the start
        self._clock = clock
        self._live: Live | None = None
        self._before: dict[str, Standing] = {}
        self._told: dict[str, float] = {}  # when each job was last spoken of

    def __enter__(self) -> Self:
        if not self._silent and sys.stderr.isatty():
            self._live = Live(
                console=console(stderr=True), auto_refresh=False, redirect_stdout=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, standings: Sequence[Standing]) -> None:
        """How all jobs stand by now."""
        live = self._live
        if live is None:
            self._tell(lambda: self._lines(standings))
        else:
            self._tell(lambda: live.update(table(standings, ROWS), refresh=True))

    def message(self, text: str) -> None:
        """A line of text, above the table."""
        live = self._live
        self._tell(lambda: say(text) if live is None else live.console.print(Text(inert(text))))

    def _tell(self, what: Callable[[], None]) -> None:
        """Jobs go on if nobody reads any more (`2>&1 | head`)."""
        if self._silent:
            return
        try:
            what()
        except OSError:
            self._silent = True

    def _lines(self, standings: Sequence[Standing]) -> None:
        for each in standings:
            name, before = each.job.name, self._before.get(each.job.name)
            news = before is None or before.state != each.state
            late = self._clock() - self._told.get(name, 0.0) > SECONDS_BETWEEN_LINES
            if (news and each.state != "waiting") or (each.state == "running" and late):
                say(f"{name}: {in_words(each)}")
                self._told[name] = self._clock()
            self._before[name] = each


def table(standings: Sequence[Standing], rows: int | None = None) -> Table:
    """All jobs, or so many, those at work first; the caption counts all."""
    counts = Counter(each.state for each in standings)
    said = ", ".join(f"{counts[state]} {state}" for state in _FIRST if counts[state])
    found = Table(
        caption=f"{len(standings)} job{'s' * (len(standings) != 1)}: {said}", caption_justify="left"
    )
    for column in ("job", "state", "step", "return"):
        found.add_column(column, justify="right" if column == "step" else "left", overflow="fold")
    urgent = sorted(standings, key=lambda each: _FIRST.index(each.state))
    for each in standings if rows is None else urgent[:rows]:
        step = f"{each.step:,}/{each.steps:,}"
        last = inert(each.reason) if each.reason is not None else each.score
        found.add_row(Text(inert(each.job.name)), Text(each.state, _STYLES[each.state]), step, Text(last))
    return found


def in_words(standing: Standing) -> str:
    if standing.reason is not None:
        return f"{standing.state}: {standing.reason}"
    score = f", return {standing.score}" if standing.score else ""
    return f"{standing.state}, step {standing.step:,}/{standing.steps:,}{score}"
