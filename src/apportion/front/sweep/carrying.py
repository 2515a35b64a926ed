"""Carry out jobs: those that are finished stay as they are, the others begin or go on where they stopped."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.live import Live
from rich.table import Table
from rich.text import Text

from apportion.core.children import StopRequest
from apportion.core.config import UserError, check, nearest
from apportion.core.terminal import console, inert, say
from apportion.front.choosing import Job
from apportion.front.run import Run
from apportion.front.sweep import on_ray
from apportion.front.sweep.folder import Standing, State, SweepFolder, advanced, look, newest_checkpoint
from apportion.front.sweep.planning import check_jobs, default_folder, plan, read_plan, train_words
from apportion.front.sweep.process import Local, Task
from apportion.runs.folder import RunFolder, is_held

SECONDS_BETWEEN_LOOKS = 0.25  # whether a job has ended
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class How:
    """Where jobs run, and how many at a time."""

    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster (extra `ray`)."""
    jobs: int | None = None
    """Jobs at a time. By default one for every GPU, or for every four cores where there is none; with Ray as
    many as the cluster has room for."""
    per_gpu: int = 1
    """Jobs that share a GPU, when --jobs is not given; with Ray always."""
    address: str | None = None
    """Of the Ray cluster; by default RAY_ADDRESS, or else a cluster of this machine alone."""

    def __post_init__(self) -> None:
        check(self.engine in ENGINES, f"unknown engine {self.engine!r}{nearest(self.engine, ENGINES)}")
        check(self.jobs is None or self.jobs >= 1, f"--jobs {self.jobs} must be at least 1")
        check(self.per_gpu >= 1, f"--per-gpu {self.per_gpu} must be at least 1")
        check(self.engine == "ray" or self.address is None, "--address is Ray's: add --engine ray")


class Carried(NamedTuple):
    """How all jobs stand, in their order."""

    standings: list[Standing]
    signal: int | None = None  # that stopped them early

    @property
    def done(self) -> bool:
        return all(each.state == "finished" for each in self.standings)

    @property
    def failed(self) -> list[Standing]:
        return [each for each in self.standings if each.state == "failed"]


def survey(jobs: Sequence[Job], folder: Path) -> Carried:
    """Check all jobs, and look how far each is, also while others work on them; nothing is started or
    written."""
    check_jobs(jobs)
    place = SweepFolder(folder.absolute())
    place.check_belongs(jobs)
    found = [look(job, place.run(job)) for job in jobs]
    return Carried(
        [advanced(replace(each, state="running")) if is_held(each.run) else each for each in found]
    )


def carry_out(jobs: Sequence[Job], folder: Path, how: How | None = None, quiet: bool = False) -> Carried:
    """Run all jobs that are not finished, each into its run folder under `folder`, and say how they ended.

    Whatever is wrong with any of them is said before the first starts. One that dies goes on from its newest
    checkpoint, as long as each attempt has written one; otherwise it has failed, which does not keep the
    others from going on. SIGINT and SIGTERM let those at work save and end; the same call goes on.
    """
    how = how or How()
    if how.engine == "ray":
        on_ray.set_up()
    check_jobs(jobs)
    place = SweepFolder.open(folder, jobs)
    with place.lock():
        found = Carried([look(job, place.run(job)) for job in jobs])
        if found.done:
            return found
        with closing(_engine(how, place, len(jobs))) as engine:
            return _Course(place, engine, found.standings).run(quiet)


Engine = Local | on_ray.OnRay  # runs jobs; what is left when it is closed is killed


def _engine(how: How, place: SweepFolder, jobs: int) -> Engine:
    if how.engine == "ray":
        return on_ray.OnRay(place, how.jobs or jobs, how.per_gpu, how.address)
    return Local(how.jobs, how.per_gpu)


# --- How all jobs stand, on stderr: a live table on a terminal, a line for each change elsewhere


# What is shown first, and how.
_STYLES: dict[State, str] = {
    "running": "bold", "failed": "red", "stopped": "yellow", "waiting": "dim", "finished": "green",
}  # fmt: skip


class Board:
    """Shows standings until it is closed; nothing when quiet."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._silent = quiet or sys.stderr is None  # it is None where it was closed before the start
        self._clock = clock
        self._live: Live | None = None
        self._told: dict[str, tuple[State, float]] = {}  # of each job: its state, and in which minute
        if not self._silent and sys.stderr.isatty():
            screen = console(stderr=True)
            self._live = Live(console=screen, auto_refresh=False, redirect_stdout=False, transient=True)
            self._live.start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, standings: Sequence[Standing]) -> None:
        """How all jobs stand by now: news, and each minute again those at work."""
        if self._live is not None:
            self._tell(partial(self._live.update, table(standings, rows=30), refresh=True))
            return
        for each in standings:
            now = each.state, self._clock() // 60 if each.state == "running" else 0.0
            if each.state != "waiting" and now != self._told.get(each.job.name):
                self.message(f"{each.job.name}: {in_words(each)}")
            self._told[each.job.name] = now

    def message(self, text: str) -> None:
        """A line of text, above the table."""
        live = self._live
        self._tell(lambda: say(text) if live is None else live.console.print(Text(inert(text))))

    def _tell(self, what: Callable[[], None]) -> None:
        """Jobs go on if nobody reads any more (`2>&1 | head`)."""
        try:
            if not self._silent:
                what()
        except OSError:
            self._silent = True


def table(standings: Sequence[Standing], rows: int | None = None) -> Table:
    """All jobs, or so many, those at work first; the caption counts all."""
    counts = Counter(each.state for each in standings)
    said = ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])
    found = Table(
        caption=f"{len(standings)} job{'s' * (len(standings) != 1)}: {said}", caption_justify="left"
    )
    for column in ("job", "state", "step", "return"):
        found.add_column(column, justify="right" if column == "step" else "left", overflow="fold")
    urgent = sorted(standings, key=lambda each: [*_STYLES].index(each.state))
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


# --- The course of a sweep


class _Course:
    """The jobs of a sweep on their way."""

    def __init__(self, place: SweepFolder, engine: Engine, standings: Sequence[Standing]) -> None:
        self.place = place
        self.engine = engine
        self.standings = {each.job.name: each for each in standings}
        self.waiting = [each.job for each in standings if each.state != "finished"]
        self.running: dict[str, int | None] = {}  # jobs at work, and the newest checkpoint they started from
        self.read_at = 0.0

    def run(self, quiet: bool) -> Carried:
        asked = False
        with StopRequest() as stop, closing(Board(quiet)) as board:
            while self.running or (self.waiting and not stop.requested):
                if stop.requested and not asked:
                    self.engine.stop()
                    asked = True
                    board.message("Stopping: jobs at work save first. Another Ctrl-C ends them at once.")
                while self.waiting and len(self.running) < self.engine.room and not stop.requested:
                    self._start(self.waiting.pop(0))
                self._look(stop.requested, board)
                board.show(list(self.standings.values()))
                time.sleep(SECONDS_BETWEEN_LOOKS)
        carried = Carried(list(self.standings.values()), stop.signal)
        return carried._replace(signal=None) if carried.done else carried

    def _start(self, job: Job) -> None:
        run = self.place.run(job)
        self.running[job.name] = newest_checkpoint(run)
        self.engine.start(Task(job.name, train_words(job, run), run, self.place.log(job), Path.cwd()))

    def _look(self, stopping: bool, board: Board) -> None:
        if time.monotonic() - self.read_at > 2:  # seconds: there may be hundreds of logs, on a slow disk
            for name in filter(self.engine.working, self.running):
                self.standings[name] = advanced(replace(self.standings[name], state="running"))
            self.read_at = time.monotonic()
        for name, problem in self.engine.ended().items():
            job = self.standings[name].job
            after = look(job, self.place.run(job))
            came_further = newest_checkpoint(after.run) != self.running.pop(name)
            if after.state != "finished" and not stopping:
                reason = problem or f"it ended early (see {self.place.log(job)})"
                # Of a frozen run no seed is left to train.
                if came_further and RunFolder(after.run).read_status().get("state") != "frozen":
                    board.message(f"{name}: {reason.rstrip('.')}. It goes on from its newest checkpoint.")
                    self.waiting.append(job)  # behind the others: what ended it may need a while to pass
                else:
                    after = replace(after, state="failed", reason=reason)
            self.standings[name] = after


# --- `apportion.sweep`


def sweep(
    what: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    per_gpu: int = 1,
    address: str | None = None,
    quiet: bool = False,
) -> list[Run]:
    """Train all that a sweep file asks for, or go on with it, and give the runs in the order of its jobs.

    `what` is the file, or a mapping of the same form: {"sweep": {"tasks": [...], ...}, "set": {...}}, which
    needs `out`. The other arguments are flags of `apportion sweep`. UserError names the jobs that failed,
    when the others are done; Ctrl-C lets those at work save and end, and the same call goes on.
    """
    if isinstance(what, Mapping):
        check(out is not None, "where should the runs of this sweep go? Give out")
        planned, default = plan(what), Path()
    else:
        planned, default = read_plan(Path(what)), default_folder(what)
    folder = default if out is None else Path(out)
    carried = carry_out(planned, folder, How(engine, jobs, per_gpu, address), quiet)
    if carried.signal is not None:
        raise KeyboardInterrupt("the sweep was stopped, and saved: the same call goes on")
    if carried.failed:
        reasons = "; ".join(f"{each.job.name} failed: {each.reason}" for each in carried.failed)
        raise UserError(reasons)
    return [Run.open(each.run) for each in carried.standings]
