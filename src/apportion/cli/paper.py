"""`apportion paper`: the experiments of the GRD paper, one command each."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.arguments import parse, usage_errors
from apportion.cli.output import Output, print_data
from apportion.core.config import check
from apportion.core.terminal import say
from apportion.front.paper.experiments import EXPERIMENTS, Choice, Request, Scale, find
from apportion.front.paper.running import Outcome, run_experiment
from apportion.front.sweep.carrying import How

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


Paper.__doc__ = f"""Run an experiment of the GRD paper, and set its figure or table beside what it prints.

    NAME is one of

    {_LINES}

    The same command again goes on where it stopped; finished trainings stay as they are.
    """


def paper(argv: list[str]) -> int:
    """Run an experiment of the paper."""
    with usage_errors():
        args = parse(Paper, argv, "apportion paper")
        find(args.name)
        for flag in ("steps", "seeds"):
            given = getattr(args, flag)
            check(given is None or given >= 1, f"--{flag} {given} must be at least 1")
    request = Request(args.scale, args.settings, args.steps, args.seeds)
    folder = args.out or request.folder(args.name)
    outcome = run_experiment(args.name, request, folder, args.how, args.output.quiet)
    if outcome.data is None:
        return _unfinished(outcome, folder)
    print_data(outcome.data, args.output, tables)
    return 0


def tables(console: Console, data: dict[str, Any]) -> None:
    """The page as it was written, and where it lies."""
    console.print(Text(Path(data["page"]).read_text()))
    for file in (data["page"], f"{data['out']}/results.json", *data["figures"]):
        console.print(Text(file))


def _unfinished(outcome: Outcome, folder: Path) -> int:
    """The exit code, after a line for each training that failed, or for how to go on."""
    carried = outcome.carried
    for each in carried.failed:
        say(f"error: {each.job.name} failed: {each.reason}")
    if carried.signal is None:
        return 1
    say(f"Stopped and saved in {folder}. The same command goes on.")
    return 128 + carried.signal
