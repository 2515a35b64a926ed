"""`apportion sweep`: many trainings from one file; `apportion paper`: the experiments of the GRD paper."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.display import Flag, Output, print_data
from apportion.core.config import check
from apportion.core.registry import from_folder
from apportion.core.terminal import say
from apportion.front.paper.experiments import EXPERIMENTS, Choice, Request, Scale, find
from apportion.front.paper.presenting import run_experiment
from apportion.front.sweep.carrying import Carried, How, carry_out, survey, table
from apportion.front.sweep.planning import default_folder, read_plan, train_words


@dataclass(frozen=True)
class Sweep:
    """Train all that a TOML file asks for: every task with every method and backbone, seeds side by side.

    The file has up to three tables:

    [sweep]
    - tasks = ["HalfCheetah-v4", "Ant-v4"]
    - methods = ["grd", "rd", "oracle"]
    - backbones = ["sac"] (left out: what suits each task)
    - seeds = 5 (lanes of one process)
    - steps = 300_000

    [set], flags of `apportion train` for all jobs that have them
    - "env.delay" = "20"

    [vary], lists of values, with a job for each combination of them
    - "method.hidden" = [[64, 64], [256, 256]]

    Each job is an ordinary run folder. The same command again goes on where it stopped: finished jobs stay as
    they are, others continue from their checkpoints.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml")]
    """The sweep file."""
    out: Path | None = None
    """Sweep folder, with a run folder for each job; runs/FILE when not given."""
    how: tyro.conf.OmitArgPrefixes[How] = field(default_factory=How)
    dry_run: Flag = False
    """Only check the file and say what would be done: the command of each job, and how far it is."""
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        jobs, folder = read_plan(self.file), from_folder(self.out or default_folder(self.file))
        quiet = self.output.quiet
        carried = survey(jobs, folder) if self.dry_run else carry_out(jobs, folder, self.how, quiet)
        standings = [each.to_dict() for each in carried.standings]
        data = {"out": str(folder), "done": carried.done, "jobs": standings}

        def tables(console: Console, data: dict[str, Any]) -> None:
            console.print(table(carried.standings))
            for each in carried.standings if self.dry_run else ():
                words = train_words(each.job, folder / each.job.name)
                console.print(Text(f"apportion {shlex.join(words)}"))

        print_data(data, self.output, tables)
        return 0 if self.dry_run else _code(carried, folder)


def _code(carried: Carried, folder: Path) -> int:
    """The exit code, after a line for each job that failed, or for how to go on."""
    for each in carried.failed:
        say(f"error: job {each.job.name} failed: {each.reason}")
    if carried.signal is None:
        return 0 if carried.done else 1
    finished = sum(each.state == "finished" for each in carried.standings)
    line = f"Stopped and saved in {folder}, {finished} of {len(carried.standings)} jobs are finished."
    say(f"{line} The same command goes on.")
    return 128 + carried.signal


# --- apportion paper


_LINES = "\n\n    ".join(f"{each.name:<11} {each.title} ({each.source})" for each in EXPERIMENTS.values())


@dataclass(frozen=True)
class Paper:
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which experiment: see above."""
    scale: Scale = "smoke"
    """Tiny, to see that all works; half of the paper's steps; all of them."""
    settings: Choice = "published"
    """GRD as published, the settings that serve best by our measurements, or both side by side."""
    steps: int | None = None
    """Train for so many steps instead of the scale's."""
    seeds: int | None = None
    """So many seeds instead of the scale's: 5, or 2 with smoke."""
    out: Path | None = None
    """Folder of the result and its runs; runs/paper-NAME-SCALE when not given, and what else is asked for."""
    how: tyro.conf.OmitArgPrefixes[How] = field(default_factory=How)
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        find(self.name)
        for flag in ("steps", "seeds"):
            given = getattr(self, flag)
            check(given is None or given >= 1, f"--{flag} {given} must be at least 1")

    def __call__(self) -> int:
        request = Request(self.scale, self.settings, self.steps, self.seeds)
        folder = self.out or request.folder(self.name)
        carried, data = run_experiment(self.name, request, folder, self.how, self.output.quiet)
        if data is None:
            return _code(carried, folder)
        print_data(data, self.output, tables)
        return 0


Paper.__doc__ = f"""Run an experiment of the GRD paper, and set its figure or table beside what it prints.

    NAME is one of

    {_LINES}

    The same command again goes on where it stopped; finished trainings stay as they are.
    """


def tables(console: Console, data: dict[str, Any]) -> None:
    """The page as it was written, and where it lies."""
    console.print(Text(Path(data["page"]).read_text()))
    for file in (data["page"], f"{data['out']}/results.json", *data["figures"]):
        console.print(Text(file))
