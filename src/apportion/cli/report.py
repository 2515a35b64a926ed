"""`apportion report`: the page about one run or several."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.arguments import parse, usage_errors
from apportion.cli.output import NoEnv, Output, print_data, remember_compilations
from apportion.core.config import check
from apportion.core.registry import from_folder
from apportion.core.terminal import say
from apportion.report.drawing import need_matplotlib
from apportion.report.figures import write_figures
from apportion.report.page import Extras, Names, check_fit, make_page, page_of, read_names
from apportion.runs.folder import RunFolder


@dataclass(frozen=True)
class Report:
    """Make one HTML page about one run or several: curves, causal structure, episodes, numbers."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """The run folders."""
    out: Path | None = None
    """The page to write; RUN/report.html when not given, for several runs report.html here."""
    extras: Extras = "auto"
    """Contributions and pictures for the newest episodes; `all` reads huge checkpoints, too."""
    names: Path | None = None
    """JSON file with your own observation_names and action_names."""
    figures: Path | None = None
    """Also write the paper's figures of these runs, as files, into this folder."""
    format: Literal["svg", "png", "pdf"] = "svg"
    """Format of the figures."""
    noise_results: tuple[Path, ...] = ()
    """Files of `apportion eval RUN --noise STD --out FILE`: points of the figure on robustness."""
    no_env: NoEnv = False
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)


def report(argv: list[str]) -> int:
    """Make one HTML page about one run or several."""
    with usage_errors():
        args = parse(Report, argv, "apportion report")
        check(len(args.runs) > 0, "no run folder given: name at least one")
    runs = [RunFolder.open(path, trusted=not args.no_env) for path in args.runs]
    out = page_of(runs, args.out and from_folder(args.out))
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
    written = make_page(runs, out, names, args.extras, None if args.output.quiet else _say)
    drawn: list[Path] = []
    if args.figures is not None:
        drawn = write_figures(runs, from_folder(args.figures), args.format, args.noise_results)
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


def _say(reason: str) -> None:
    say(reason)
