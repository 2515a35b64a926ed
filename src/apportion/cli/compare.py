"""`apportion compare`: runs beside each other; `apportion report`: the page about one run or several."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.display import NoEnv, Output, amount, print_data, table
from apportion.core.config import check
from apportion.core.registry import from_folder
from apportion.core.terminal import say
from apportion.report.comparison import Metric, compare_runs, read_random
from apportion.report.drawing import check_file, need_matplotlib
from apportion.report.figures import write_figures
from apportion.report.page import Extras, make_page, page_of, read_names
from apportion.runs.folder import RunFolder


@dataclass(frozen=True)
class Compare:
    """Compare runs: interquartile means with 95% intervals, per task and over all, and who beats whom."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders, or folders that hold some, as a sweep leaves them."""
    metric: Metric = "return"
    """What to compare: the return, or the success rate where environments report it."""
    at: int | None = None
    """The step at which runs are compared; by default the last that all runs of a task have."""
    random: Path | None = None
    """JSON file with the return of random actions by task; by default a few episodes are played."""
    figure: Path | None = None
    """Also draw curves and scores into this file: .svg, .png or .pdf."""
    csv: Path | None = None
    """Also write every evaluation as a table, a row for each task, method, backbone, seed and step."""
    no_env: NoEnv = False
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check(len(self.runs) > 0, "no run folder given: name at least one")
        check(self.at is None or self.at >= 0, f"--at {self.at} must not be negative")
        if self.figure is not None:
            check_file(self.figure)

    def __call__(self) -> int:
        random = None if self.random is None else read_random(self.random)
        found = compare_runs(self.runs, self.metric, self.at, random, not self.no_env)
        if self.csv is not None:
            found.write_csv(self.csv)
        if self.figure is not None:
            found.figure(self.figure)
        print_data(found.summary(), self.output, tables)
        return 0


def tables(console: Console, data: dict[str, Any]) -> None:
    """What `apportion compare` prints."""
    rates, together = data["metric"] == "success", data["aggregate"]
    shown = {
        f"{task} at step {data['steps'][task]:,}: {data['metric']}": methods
        for task, methods in data["tasks"].items()
    }
    if len(together["scaled_tasks"]) > 1:
        scale = "success rate" if rates else "random actions 0, oracle 1"
        shown[f"{len(together['scaled_tasks'])} tasks: {scale}"] = together["methods"]
    for title, methods in shown.items():
        rows = [{"method": Text(label), **_cells(label, methods, rates)} for label in methods]
        console.print(table(title, rows, ("method",)))


def _cells(label: str, methods: dict[str, Any], rates: bool) -> dict[str, str]:
    """Of a method among others, by column: on a task, or over all."""
    each, row = methods[label], {}
    if "seeds" in each:
        count, lost = len(each["seeds"]), len(each["left_out"])
        row["seeds"] = f"{count} of {count + lost}" if lost else str(count)
    row |= {"IQM": _spread(each), "mean": amount(each["mean"])}
    if "auc" in each:
        row["area under curve"] = amount(each["auc"]["iqm"])
    # Success rates are on their scale as they are: they need be said once.
    for scale in () if rates else ("normalised", "success"):
        if any(other.get(scale) for other in methods.values()):
            row[scale] = _spread(each.get(scale))
    # How probably a run of this method beats one of any other's, against each of them in turn.
    chances = [found["probability"] for found in each["improvement_over"].values()]
    known = [chance for chance in chances if chance is not None]
    return {**row, "beats others": f"{sum(known) / len(known):.0%}" if known else "-"}


def _spread(found: dict[str, Any] | None) -> str:
    """An interquartile mean with its interval, where there is one."""
    if found is None:
        return "-"
    centre, bounds = found["iqm"], found["interval"]
    if None in bounds:
        return amount(centre)
    return f"{amount(centre)} [{amount(bounds[0])}, {amount(bounds[1])}]"


# --- The page


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

    def __post_init__(self) -> None:
        check(len(self.runs) > 0, "no run folder given: name at least one")

    def __call__(self) -> int:
        runs = [RunFolder.open(path, trusted=not self.no_env) for path in self.runs]
        out = page_of(runs, self.out and from_folder(self.out))
        specs = [run.read_spec() for run in runs]
        names = None if self.names is None else read_names(self.names, specs)
        if self.figures is not None:
            need_matplotlib()
        check(self.figures is not None or not self.noise_results, "--noise-results needs --figures FOLDER")
        if not self.output.quiet:
            print(f"Reading {len(runs)} run(s) ...", file=sys.stderr)
        written = make_page(runs, out, names, self.extras, None if self.output.quiet else say)
        drawn: list[Path] = []
        if self.figures is not None:
            drawn = write_figures(runs, from_folder(self.figures), self.format, self.noise_results)
        data = {"report": str(written.path), "bytes": written.size, "runs": [str(run.path) for run in runs]}
        data["figures"] = [str(file) for file in drawn]

        def tables(console: Console, data: dict[str, Any]) -> None:
            megabytes = data["bytes"] / 1e6
            line = f"{data['report']} ({megabytes:.1f} MB, {written.seconds:.1f} s). Open it in a browser."
            console.print(Text(line))  # a path is no markup
            for file in data["figures"]:
                console.print(Text(file))

        print_data(data, self.output, tables)
        return 0
