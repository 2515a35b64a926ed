"""`apportion report`: the page about one run or several."""

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.arguments import blaming_the_command_line, parse
from apportion.cli.cache import remember_compilations
from apportion.cli.output import Output, print_data
from apportion.core.config import check
from apportion.report.drawing import need_matplotlib
from apportion.report.episodes import Extras
from apportion.report.extras import make_extras
from apportion.report.figures import write_figures
from apportion.report.names import Names, check_fit, read_names
from apportion.report.page import ExtrasOf, write_report
from apportion.runs.folder import RunFolder

LANES_EXPLAINED = 3  # of all runs together, but one of each at least


@dataclass(frozen=True)
class Report:
    """Make one HTML page about one run or several: curves, causal structure, episodes, numbers."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """The run folders."""
    out: Path | None = None
    """The page to write; RUN/report.html when not given, for several runs report.html here."""
    extras: Literal["auto", "all", "none"] = "auto"
    """Contributions and pictures for the newest episodes; `all` reads huge checkpoints, too."""
    names: Path | None = None
    """JSON file with your own observation_names and action_names."""
    figures: Path | None = None
    """Also write the paper's figures of these runs, as files, into this folder."""
    format: Literal["svg", "png", "pdf"] = "svg"
    """Format of the figures."""
    noise_results: tuple[Path, ...] = ()
    """Files of `apportion eval RUN --noise STD --out FILE`: points of the figure on robustness."""
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)


def report(argv: list[str]) -> int:
    """Make one HTML page about one run or several."""
    with blaming_the_command_line():
        args = parse(Report, argv, "apportion report")
        check(len(args.runs) > 0, "no run folder given: name at least one")
    runs = [RunFolder.open(path) for path in args.runs]
    out = args.out or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    check(not out.is_dir(), f"{out} is a folder: give --out a file name, such as {out / 'report.html'}")
    names: Names = {}
    if args.names is not None:
        names = read_names(args.names)
        check_fit(names, [run.read_spec() for run in runs], args.names)
    if args.figures is not None:
        need_matplotlib()
    check(args.figures is not None or not args.noise_results, "--noise-results needs --figures FOLDER")
    remember_compilations()
    if not args.output.quiet:
        print(f"Reading {len(runs)} run(s) ...", file=sys.stderr)
    written = write_report(runs, out, names, None if args.extras == "none" else _extras(args))
    drawn: list[Path] = []
    if args.figures is not None:
        drawn = write_figures(runs, args.figures, args.format, args.noise_results)
    data = {
        "report": str(written.path),
        "bytes": written.size,
        "runs": [str(run.path) for run in runs],
        "figures": [str(file) for file in drawn],
    }

    def tables(console: Console, data: dict[str, Any]) -> None:
        megabytes = data["bytes"] / 1e6
        line = f"{data['report']} ({megabytes:.1f} MB, {written.seconds:.1f} s). Open it in a browser."
        console.print(Text(line))  # a path is no markup
        for file in data["figures"]:
            console.print(Text(file))

    print_data(data, args.output, tables)
    return 0


def _extras(args: Report) -> ExtrasOf:
    """Contributions and pictures for each run; why there are none goes to stderr, each reason once."""

    def of_run(run: RunFolder) -> Extras:
        @cache
        def say(reason: str) -> None:
            if not args.output.quiet:
                print(f"{run.path}: {reason}", file=sys.stderr)

        lanes = max(1, LANES_EXPLAINED // len(args.runs))
        return make_extras(run, lanes, args.extras == "all", say)

    return of_run
