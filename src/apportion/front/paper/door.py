"""The front door of the paper's experiments: run one, and write its table and figures into a folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from apportion.core.config import check, nearest
from apportion.front.paper import rewards, robustness, scores, structure, swimmer
from apportion.front.paper.experiments import EXPERIMENTS, Experiment, Kind
from apportion.front.paper.planning import Choice, Planned, jobs_of, plan
from apportion.front.paper.presenting import Done, Finished, Presented
from apportion.front.paper.scales import Name, Scale, scale_of
from apportion.front.paper.writing import write
from apportion.front.sweep.carrying import Carried, How, carry_out
from apportion.front.sweep.folder import SweepFolder
from apportion.report.drawing import need_matplotlib
from apportion.runs.folder import RunFolder

RUNS = "runs"  # the sweep folder within an experiment's
_NO_OPTIMISING = "JAX_DISABLE_MOST_OPTIMIZATIONS"

_PRESENTERS: dict[Kind, Callable[[Finished], Presented]] = {
    "scores": scores.present,
    "swimmer": swimmer.present,
    "robustness": robustness.present,
    "structure": structure.present,
    "rewards": rewards.present,
}


class Outcome(NamedTuple):
    """How the trainings ended, and the result, where all of them are done."""

    carried: Carried
    data: dict[str, Any] | None


def find(name: str) -> Experiment:
    """The experiment of this name."""
    check(name in EXPERIMENTS, f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def default_folder(
    name: str, size: Name, choice: Choice = "published", steps: int | None = None, seeds: int | None = None
) -> Path:
    """The same place each time, so that an experiment goes on there; another one for what is not usual."""
    words = ["paper", name, size, *([choice] if choice != "published" else [])]
    words += [f"{count}-{what}" for count, what in ((steps, "steps"), (seeds, "seeds")) if count is not None]
    return Path("runs") / "-".join(words)


def run_experiment(
    name: str,
    size: Name = "smoke",
    choice: Choice = "published",
    out: Path | None = None,
    how: How | None = None,
    quiet: bool = False,
    steps: int | None = None,
    seeds: int | None = None,
) -> Outcome:
    """Train what the experiment needs, or go on with it, and present it. What is trained stays as it is."""
    experiment = find(name)
    need_matplotlib()  # before hours of training
    scale = scale_of(experiment, size, steps, seeds)
    planned = plan(experiment, scale, choice)
    folder = out or default_folder(name, size, choice, steps, seeds)
    _check_own(folder)
    with _quick_to_compile(size == "smoke"):
        carried = carry_out(jobs_of(planned), folder / RUNS, how, quiet)
    if not carried.done:
        return Outcome(carried, None)
    return Outcome(carried, _present(experiment, scale, planned, carried, folder))


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
    if not wanted or _NO_OPTIMISING in os.environ:
        yield
        return
    os.environ[_NO_OPTIMISING] = "1"
    try:
        yield
    finally:
        del os.environ[_NO_OPTIMISING]


def _present(
    experiment: Experiment, scale: Scale, planned: list[Planned], carried: Carried, folder: Path
) -> dict[str, Any]:
    runs = {standing.job.name: RunFolder.open(standing.run) for standing in carried.standings}
    done = [Done(each, runs[each.job.name]) for each in planned]
    finished = Finished(experiment, scale, done, folder)
    return write(finished, _PRESENTERS[experiment.kind](finished))
