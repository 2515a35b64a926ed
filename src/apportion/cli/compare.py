"""`apportion compare`: runs beside each other; `apportion report`: the page about one run or several."""

import sys
from collections.abc import Callable
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
from apportion.report.page import Extras, Names, check_fit, make_page, page_of, read_names
from apportion.runs.folder import RunFolder

Cells = Callable[[str, dict[str, Any]], dict[str, str]]  # of a method among others, by column


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

    def show(title: str, methods: dict[str, Any], cells: Cells) -> None:
        rows = [{"method": Text(label), **cells(label, methods)} for label in methods]
        console.print(table(title, rows, ("method",), fold=True))  # two may differ in last letters only

    for task, methods in data["tasks"].items():
        title = f"{task} at step {data['steps'][task]:,}: {data['metric']}"
        show(title, methods, _on_task if data["metric"] == "return" else _on_rates)
    together = data["aggregate"]
    if len(together["scaled_tasks"]) > 1:
        scale = "success rate" if data["metric"] == "success" else "random actions 0, oracle 1"
        show(f"{len(together['scaled_tasks'])} tasks: {scale}", together["methods"], _together)


def _on_task(label: str, methods: dict[str, Any]) -> dict[str, str]:
    each, row = methods[label], _of_seeds(methods[label])
    if any(other["normalised"] for other in methods.values()):
        row["normalised"] = _spread(each["normalised"])
    if any("success" in other for other in methods.values()):
        row["success"] = _spread(each.get("success"))
    return {**row, **_beats(label, methods)}


def _on_rates(label: str, methods: dict[str, Any]) -> dict[str, str]:
    """Success rates are on their scale as they are: they need be said once."""
    return {**_of_seeds(methods[label]), **_beats(label, methods)}


def _of_seeds(each: dict[str, Any]) -> dict[str, str]:
    count, lost = len(each["seeds"]), len(each["left_out"])
    return {
        "seeds": f"{count} of {count + lost}" if lost else str(count),
        **_scores(each),
        "area under curve": amount(each["auc"]["iqm"]),
    }


def _together(label: str, methods: dict[str, Any]) -> dict[str, str]:
    return {**_scores(methods[label]), **_beats(label, methods)}


def _scores(each: dict[str, Any]) -> dict[str, str]:
    return {"IQM": _spread(each), "mean": amount(each["mean"])}


def _beats(label: str, methods: dict[str, Any]) -> dict[str, str]:
    """How probably a run of this method beats one of any other's, against each of them in turn."""
    chances = [each["probability"] for each in methods[label]["improvement_over"].values()]
    known = [chance for chance in chances if chance is not None]
    return {"beats others": f"{sum(known) / len(known):.0%}" if known else "-"}


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
        names: Names = {}
        if self.names is not None:
            names = read_names(self.names)
            check_fit(names, [run.read_spec() for run in runs], self.names)
        if self.figures is not None:
            need_matplotlib()
        check(self.figures is not None or not self.noise_results, "--noise-results needs --figures FOLDER")
        if not self.output.quiet:
            print(f"Reading {len(runs)} run(s) ...", file=sys.stderr)
        written = make_page(runs, out, names, self.extras, None if self.output.quiet else say)
        drawn: list[Path] = []
        if self.figures is not None:
            drawn = write_figures(runs, from_folder(self.figures), self.format, self.noise_results)
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

        print_data(data, self.output, tables)
        return 0
