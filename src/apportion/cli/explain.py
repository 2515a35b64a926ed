"""`apportion explain`: what the agents of a run are paid for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion.cli.arguments import parse, usage_errors
from apportion.cli.display import EDGE_ROWS, amount
from apportion.cli.output import Flag, NoEnv, Output, RunPath, bar, print_data, remember_compilations
from apportion.report.credit import check_plot, plot_credit
from apportion.runs.explain import Precision
from apportion.runs.explaining import Selection, explain_run
from apportion.runs.folder import RunFolder
from apportion.runs.learned import moment_in_words


def explain(argv: list[str]) -> int:
    """Say what the agents of a run are paid for."""

    @dataclass(frozen=True)
    class Explain:
        """Say what the agents of a run are paid for: contributions of each dimension to the learned reward,
        which add up to it at every step (Shapley values)."""

        run: RunPath
        """The run folder."""
        selection: tyro.conf.OmitArgPrefixes[Selection] = field(default_factory=Selection)
        precision: tyro.conf.OmitArgPrefixes[Precision] = field(default_factory=Precision)
        best: Flag = False
        """Explain the rewards of each seed's best evaluation, instead of the newest."""
        out: Path | None = None
        """Also write everything, step by step, as JSON, to this file."""
        plot: Path | None = None
        """Also draw it, into this file: .svg, .png, .pdf or .html."""
        no_env: NoEnv = False
        output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    with usage_errors():
        args = parse(Explain, argv, "apportion explain")
        if args.plot is not None:
            check_plot(args.plot)
    remember_compilations()
    run = RunFolder.open(args.run, trusted=not args.no_env)
    with bar("Explaining", args.output) as tell:
        data = explain_run(run, args.selection, args.precision, args.best, tell)
    print_data(data, args.output, _tables, args.out)
    if args.plot is not None:
        plot_credit(data, args.plot)
    return 0


_WORTH = 0.01  # of all credit: less is not worth a warning


def _tables(console: Console, data: dict[str, Any]) -> None:
    lanes = data["lanes"]
    steps = sum(len(episode["steps"]) for lane in lanes for episode in lane["episodes"])
    title = f"What {data['method']} pays for {moment_in_words(data)}: {steps:,} steps ({data['source']})"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("dimension")
    for column in ("share", "mean |c|", "mean c", "± 90%", "± seeds", "± draw", "read in"):
        table.add_column(column, justify="right", no_wrap=True)
    keys = ("mean_absolute", "mean", "interval", "between_lanes", "sampling_error")
    for row in data["dimensions"][:EDGE_ROWS]:
        share = "-" if row["share"] is None else f"{row['share']:.1%}"
        cells = [amount(row[key]) for key in keys]
        table.add_row(Text(row["name"]), share, *cells, f"{row['lanes']}/{len(lanes)}")
    console.print(table)
    if len(data["dimensions"]) > EDGE_ROWS:
        console.print(f"... and {len(data['dimensions']) - EDGE_ROWS} more: see --json")
    baselines = ", ".join(amount(lane["baseline"]) for lane in lanes)
    note = (
        "c is a dimension's contribution to one step. All of them add up to the learned reward minus its "
        f"baseline, the mean over {data['background']} steps of the run ({baselines})."
    )
    if data["unit"] is not None:
        note += f" All are {data['unit']}: 1 more makes these odds 2.7 times as large."
    console.print(note)
    if named := _named(data, "undecided"):
        said = (
            f"Undecided: for {named} the data cannot tell whether the reward depends on them. What they are "
            "given here may be the work of a dimension that moves with them."
        )
        console.print(Text(said))  # a name is no markup
    if named := _named(data, "denied"):
        said = (
            f"Absent by the graph: {named}. They are given something all the same, by rewards that need not "
            "keep to the graph."
        )
        console.print(Text(said))
    for lane in lanes:
        if lane["baseline"] is None:
            console.print(f"Seed {lane['seed']} has no finite reward and is left out.")


def _named(data: dict[str, Any], doubt: str) -> str:
    """Dimensions that are given something although some seed has this doubt about them."""
    names = [row["name"] for row in data["dimensions"] if row[doubt] and (row["share"] or 0) >= _WORTH]
    return ", ".join(names[:EDGE_ROWS]) + (", ..." if len(names) > EDGE_ROWS else "")
