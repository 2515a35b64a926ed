"""Does it matter in which unit a task pays? Greenhouse in its own, and in a thousandth of it, and so on.

    python benchmarks/pay.py --out results/pay.json

`--level -1000` adds as much to every reward: what earns then is a small part of what is paid. Returns are
given in Greenhouse's own unit, without the level. Medians over seeds, with 95% bootstrap intervals.
"""

import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from paid_in import ID, STEPS
from rich.console import Console
from rich.table import Table

from apportion.cli.output import remember_compilations
from apportion.envs.make import EnvConfig
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions
from apportion.runs.recording import Checkpoints
from apportion.training.presets import GREENHOUSE, preset
from apportion.training.settings import Config
from methods import cell, finished, interval, lanes


@dataclass(frozen=True)
class Pay:
    """Train methods on one task, paid in different units."""

    out: Path
    """JSON file to write."""
    units: tuple[float, ...] = (1e-5, 1e-3, 1.0, 1e3, 1e5)
    """What every reward is multiplied with."""
    level: float = 0.0
    """What is then added to every reward, whatever anybody does."""
    methods: tuple[str, ...] = ("grd", "rd")
    """Which methods."""
    seeds: int = 3
    """Seeds per training."""
    steps: int = 20_000
    """Environment steps per seed."""
    runs: Path | None = None
    """Where run folders are kept, and finished ones found; nowhere when not given."""


def main(args: Pay) -> None:
    # Environments live in processes of their own, which look for the task's module here too.
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(modules)
    console, made_with = Console(), versions()
    rows = []
    with tempfile.TemporaryDirectory() as nowhere:
        for method in args.methods:
            for unit in args.units:
                path = (args.runs or Path(nowhere)) / f"{method}-{unit:g}"
                config = settings(args, method, unit)
                if not finished(path, config):
                    console.print(f"{method}, times {unit:g} ...")
                    recording.train(config, Checkpoints(), path, quiet=True)
                rows.append(
                    {"method": method, "unit": unit, **scores(args, lanes(RunFolder.open(path)), unit)}
                )
    write_json(args.out, {"command": command(args), "versions": made_with, "rows": rows})
    console.print(table(rows))


def settings(args: Pay, method: str, unit: float) -> Config:
    config = replace(preset(GREENHOUSE, method, "sac"), lanes=args.seeds)
    schedule = replace(config.schedule, steps=args.steps)
    return replace(
        config, schedule=schedule, env=EnvConfig(ID, kwargs=json.dumps({"unit": unit, "level": args.level}))
    )


def scores(args: Pay, found: dict[str, Any], unit: float) -> dict[str, Any]:
    returns = [(value - args.level * STEPS) / unit for value in found["return"]]
    correlations = found["reward_correlation"]
    return {
        "correlation": interval(correlations),
        "return": interval(returns),
        "by_seed": {"correlation": correlations, "return": returns},
    }


def command(args: Pay) -> str:
    units, methods = " ".join(f"{unit:g}" for unit in args.units), " ".join(args.methods)
    return (
        f"python benchmarks/pay.py --units {units} --level {args.level:g} --methods {methods} "
        f"--seeds {args.seeds} --steps {args.steps} --out {args.out}"
    )


def table(rows: list[dict[str, Any]]) -> Table:
    printed = Table(title="Median over seeds [95% interval]", title_justify="left")
    for column in ("method", "paid times", "correlation", "return / unit"):
        printed.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        both = (cell(*row["correlation"]), cell(*row["return"]))
        printed.add_row(row["method"], f"{row['unit']:g}", *both)
    return printed


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Pay))
