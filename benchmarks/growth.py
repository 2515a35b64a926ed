"""How the cost of an update grows: with states, actions, episode length, lanes and the size of the replay.

    python benchmarks/growth.py --out results/growth.json --plot docs/images/growth.svg

One setting at a time around HalfCheetah's size, GRD and SAC at the paper's sizes, data made up. `--plot-only`
draws an existing JSON file again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import tyro
from rich.console import Console

from apportion.bench import flops, memory, timing, updates, workload
from apportion.bench.workload import Size
from apportion.methods import grd
from apportion.runs.atomic import write_json
from apportion.runs.folder import read_json, versions

VARIANTS = {"as published": workload.PUBLISHED, "by default": grd.Config()}


class Point(NamedTuple):
    """The sizes of one measurement; the defaults are HalfCheetah's."""

    states: int = 17
    actions: int = 6
    steps: int = 1000
    lanes: int = 1
    replay_steps: int = 100_000


AXES: dict[str, tuple[int, ...]] = {
    "states": (8, 17, 32, 64, 128, 376),
    "actions": (2, 6, 17, 32, 64),
    "steps": (40, 100, 250, 500, 1000),
    "lanes": (1, 2, 5, 10, 20),
    "replay_steps": (10_000, 100_000, 1_000_000),
}
QUICK: dict[str, tuple[int, ...]] = {"states": (4, 8), "steps": (20, 40)}


@dataclass(frozen=True)
class Growth:
    """Measure how the cost of an update grows, and plot it."""

    out: Path
    """JSON file to write."""
    plot: Path | None = None
    """Also draw the curves into this file (SVG, PNG or PDF)."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A few tiny points only, to see that it works."""
    plot_only: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Measure nothing: draw what the JSON file has."""
    seconds: float = 5.0
    """Measured time for each point."""


def main(args: Growth) -> None:
    console = Console()
    if not args.plot_only:
        rows = list(sweep(args, console))
        write_json(args.out, {"command": command(args), "versions": versions(), "rows": rows})
    if args.plot is not None:
        draw(read_json(args.out)["rows"], args.plot)


def sweep(args: Growth, console: Console) -> Iterator[dict[str, Any]]:
    peak = flops.peak()
    for axis, values in (QUICK if args.quick else AXES).items():
        for value in values:
            for name in VARIANTS:
                row = measure(Point()._replace(**{axis: value}), name, peak, args)
                console.print(f"{axis} {value:,}, {name}: {row['milliseconds']:.3g} ms")
                yield {"axis": axis, "value": value, "variant": name, **row}


def measure(point: Point, variant: str, peak: float, args: Growth) -> dict[str, Any]:
    """Milliseconds per update (of all lanes), operations and bytes."""
    size = Size(point.states, point.actions)
    spec = workload.made_up_spec(size, point.steps)
    method = VARIANTS[variant]
    one = workload.shapes(workload.settings("grd", method, updates=1), spec)
    per_update = flops.products(one.program, *one.arguments) / one.updates
    guess = per_update * point.lanes / (updates.USUAL_SHARE * peak)
    count = min(updates.MOST_UPDATES, max(1, round(updates.limits().call / guess)))
    config = workload.settings(
        "grd", method, lanes=point.lanes, updates=count, replay_steps=point.replay_steps
    )
    compiled, built = updates.compile_program(workload.shapes(config, spec))
    run = updates.runner(compiled, workload.make(config, spec))
    run()
    taken = [
        1e3 * call / config.schedule.updates_per_iteration for call in timing.repeated(run, args.seconds)
    ]
    return {
        "milliseconds": timing.median(taken),
        "milliseconds_range": [min(taken), max(taken)],
        "gflop": per_update * point.lanes / 1e9,
        "replay_bytes": memory.replay_bytes(spec, point.replay_steps),
        **built,
    }


def command(args: Growth) -> str:
    plot = "" if args.plot is None else f" --plot {args.plot}"
    return f"python benchmarks/growth.py --out {args.out}{plot}{' --quick' if args.quick else ''}"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel for each axis, both variants in each."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "growth", "font.size": 9}  # the same file from the same data
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure, panels = plt.subplots(1, len(axes), figsize=(2.6 * len(axes), 2.8), layout="constrained")
    for panel, axis in zip([panels] if len(axes) == 1 else panels, axes, strict=True):
        for variant, colour in zip(VARIANTS, ("#b4532a", "#2a6fb4"), strict=True):
            found = [row for row in rows if (row["axis"], row["variant"]) == (axis, variant)]
            panel.plot(
                [row["value"] for row in found],
                [row["milliseconds"] for row in found],
                "o-",
                color=colour,
                markersize=4,
                label=f"GRD {variant}",
            )
        panel.set(xscale="log", yscale="log", xlabel=axis.replace("_", " "))
        panel.grid(visible=True, which="major", alpha=0.3)
    first = figure.axes[0]
    first.set_ylabel("ms per update")
    first.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are measured
    main(tyro.cli(Growth))
