"""Run an experiment: a sweep trains what it needs, and when all is done its page is made."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from apportion.core.config import check
from apportion.front.paper.experiments import Request, find, plan
from apportion.front.paper.presenting import RUNS, Done, present
from apportion.front.sweep.carrying import Carried, How, carry_out
from apportion.front.sweep.folder import SweepFolder
from apportion.report import drawing
from apportion.runs.folder import RunFolder


class Outcome(NamedTuple):
    """How the trainings ended, and the result, where all of them are done."""

    carried: Carried
    data: dict[str, Any] | None


def run_experiment(
    name: str, request: Request, out: Path | None = None, how: How | None = None, quiet: bool = False
) -> Outcome:
    """Train what the experiment needs, or go on with it, and present it. What is trained stays as it is."""
    experiment = find(name)
    drawing.need_matplotlib()  # before hours of training
    planned = plan(experiment, request)
    folder = out or request.folder(name)
    _check_own(folder)
    with _quick_to_compile(request.scale == "smoke"):
        carried = carry_out([each.job for each in planned], folder / RUNS, how, quiet)
    if not carried.done:
        return Outcome(carried, None)
    runs = {standing.job.name: RunFolder.open(standing.run) for standing in carried.standings}
    done = [Done(each, runs[each.job.name]) for each in planned]
    return Outcome(carried, present(experiment, request, done, folder))


def _check_own(folder: Path) -> None:
    """Nobody's README.md is written over: the folder is new, or an experiment has been begun there."""
    begun = SweepFolder(folder / RUNS).manifest.exists()
    if not begun and folder.is_dir():
        others = [path.name for path in folder.iterdir() if path.name != RUNS]
        check(not others, f"{folder} holds no experiment, but other files: choose another --out")


@contextmanager
def _quick_to_compile(wanted: bool) -> Iterator[None]:
    """Trainings that start inside the block do not wait for programs that compute fast, unless the user has
    said otherwise: those of scale smoke compute next to nothing."""
    name = "JAX_DISABLE_MOST_OPTIMIZATIONS"
    if not wanted or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
