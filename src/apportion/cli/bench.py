"""`apportion bench`: measure this program on this machine."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from apportion.bench import peers, speed, updates
from apportion.bench.structure import Structure, run_structure, show_structure
from apportion.cli.arguments import parse, usage_errors
from apportion.cli.display import number
from apportion.cli.output import Flag, Output, print_data, remember_compilations, write_data
from apportion.core.config import UserError, check

Measurement = Callable[[Callable[[str], None]], Iterator[dict[str, Any]]]


def bench(argv: list[str]) -> int:
    """Measure speed beside other libraries, or how well known graphs are found."""
    if argv[:1] == ["structure"]:
        return _bench_structure(argv)

    @dataclass(frozen=True)
    class Bench:
        """Measure how fast this program is on this machine, beside other libraries where they are installed.
        `apportion bench structure` measures how well it finds known graphs, and has flags of its own."""

        what: Annotated[Literal["speed", "structure"], tyro.conf.Positional] = "speed"
        """What to measure."""
        quick: Flag = False
        """Only the most telling measurements, in less than a minute."""
        lanes: tuple[int, ...] = speed.LANES
        """Numbers of lanes to measure, without --quick."""
        methods: tuple[str, ...] = ()
        """Methods to measure, without --quick; all when none is named."""
        parts: tuple[speed.Part, ...] = speed.PARTS
        """What to measure, without --quick."""
        out: Path | None = None
        """Also write the result, as JSON, to this file: what there is so far, after each measurement."""
        output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    args = parse(Bench, argv, "apportion bench")
    if args.what == "structure":
        raise UserError("write `structure` first: apportion bench structure --quick", usage=True)
    if args.quick:
        remember_compilations()  # a full measurement tells how long compiling takes
    with usage_errors():
        check(len(args.parts) > 0, "--parts needs at least one")
        check(len(args.lanes) > 0 and min(args.lanes) >= 1, f"--lanes {args.lanes} must be at least 1 each")
        updates.chosen(args.methods)
    full = partial(speed.full, lanes=args.lanes, methods=args.methods, parts=args.parts)
    data = measure(speed.quick if args.quick else full, args.output, args.out)
    print_data(data, args.output, _show_speed)
    return 0


def _bench_structure(argv: list[str]) -> int:
    @dataclass(frozen=True)
    class Bench:
        """Find the graphs of synthetic problems, and compare them with the true ones."""

        what: Annotated[Literal["structure"], tyro.conf.Positional]
        """What to measure."""
        flags: tyro.conf.OmitArgPrefixes[Structure] = field(default_factory=Structure)
        out: Path | None = None
        """Also write the result, as JSON, to this file."""
        output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    with usage_errors():
        args = parse(Bench, argv, "apportion bench structure")
    data = measure(partial(_all_structure, args.flags), args.output, args.out)
    print_data(data, args.output, show_structure)
    return 0


def _all_structure(flags: Structure, report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    yield run_structure(flags, report)


def measure(measurement: Measurement, output: Output, out: Path | None) -> dict[str, Any]:
    """Do it, say meanwhile what it is at, and keep what has been found: it may take long."""
    data: dict[str, Any] = {}
    for data in measurement(_silence if output.quiet else _progress):
        if out is not None:
            write_data(data, out)
    return data


def _progress(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)


def _silence(line: str) -> None:
    pass


# --- Tables for people


def _show_speed(console: Console, data: dict[str, Any]) -> None:
    if "peers" in data:
        _peers(console, data)
    _rows(console, "Updates", data.get("updates", []), UPDATES)
    _rows(console, "Backbones, dense reward", data.get("backbones", []), BACKBONES)
    _rows(console, "Environments, nobody learning", data.get("environment", []), ENVIRONMENT)
    _rows(console, "Trainings", data.get("training", []), TRAINING)
    _rows(console, "Memory of one lane, GRD and SAC", data["memory"]["lanes"], MEMORY)
    peak = data["memory"]["peak"]
    console.print(f"Most memory in use: {_gigabytes(peak['process_bytes'])} GB by this process")
    if peak["device_bytes"]:
        console.print(f"and {_gigabytes(peak['device_bytes'])} GB on the device")


def _peers(console: Console, data: dict[str, Any]) -> None:
    found, step = data["peers"], data["our_step"]
    table = Table(title=f"One step of {found['env']}: environment and update", title_justify="left")
    for column in ("", "ms (median)", "least", "most", "times ours"):
        table.add_column(column, justify="right" if column else "left")
    for name, taken in found["milliseconds"].items():
        middle = sorted(taken)[len(taken) // 2]
        ratio = data["ratios"].get(name, found.get("published_ratio") if name != peers.OURS else None)
        table.add_row(name, *map(number, (middle, min(taken), max(taken))), number(ratio))
    console.print(table)
    console.print(
        f"Ours: {step['gflop_per_update']:.2f} GFLOP in an update's matrix products, "
        f"{step['gflop_per_second']:,.0f} GFLOP/s with the environment, "
        f"{step['share_of_peak']:.0%} of this machine's {data['peak']['float32'] / 1e9:,.0f}"
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f}"


Columns = dict[str, Callable[[dict[str, Any]], str]]


def _field(name: str) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        value = row.get(name)
        return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else number(value)

    return cell


def _time(row: dict[str, Any]) -> str:
    return "-" if "left_out" in row else number(row["milliseconds"])  # why: see --json


def _share(row: dict[str, Any]) -> str:
    return "-" if "left_out" in row else f"{row['share_of_peak']:.0%}"


def _of(name: str, unit: float) -> Callable[[dict[str, Any]], str]:
    return lambda row: "-" if row.get(name) is None else number(row[name] / unit)


UPDATES: Columns = {
    "method": _field("method"),
    "size": _field("size"),
    "lanes": _field("lanes"),
    "ms per update": _time,
    "lane updates/s": _field("lane_updates_per_second"),
    "GFLOP": _field("gflop_per_lane_update"),
    "of peak": _share,
    "GB": _of("program_bytes", 1e9),
    "compile s": _field("compile_seconds"),
}
BACKBONES: Columns = {"backbone": _field("backbone")} | {k: v for k, v in UPDATES.items() if k != "method"}
ENVIRONMENT: Columns = {
    "task": _field("env"),
    "lanes": _field("lanes"),
    "workers": _field("workers"),
    "steps/s": _field("steps_per_second"),
}
TRAINING: Columns = {
    "task": _field("env"),
    "method": _field("method"),
    "lanes": _field("lanes"),
    "iterations/s": _field("iterations_per_second"),
    "lane steps/s": _field("lane_steps_per_second"),
}
MEMORY: Columns = {
    "size": _field("size"),
    "steps kept": _field("replay_steps"),
    "replay GB": _of("replay_bytes", 1e9),
    "agent MB": _of("agent_bytes", 1e6),
}


def _rows(console: Console, title: str, rows: list[dict[str, Any]], columns: Columns) -> None:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in ("method", "size", "task") else "right")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    console.print(table)
