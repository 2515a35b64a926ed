"""Write the tables of docs/performance.md from the JSON files in results/.

    python benchmarks/performance.py

Between `<!-- NAME -->` and `<!-- end -->` the page has what this script makes of the data; the rest is prose.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from apportion.bench import timing
from apportion.bench.peers import OURS
from apportion.runs.folder import read_json

ROOT = Path(__file__).parents[1]
PLOT = ROOT / "docs" / "images" / "growth.svg"
NAMES = {
    "apportion_grd": "apportion, GRD+SAC by default",
    "apportion_grd_published": "apportion, GRD+SAC as published",
    "torch_eager_grd": "PyTorch eager, GRD+SAC",
    "sb3_sac": "Stable-Baselines3, SAC",
    "sbx_sac": "SBX, SAC",
}

Data = dict[str, Any]


@dataclass(frozen=True)
class Performance:
    """Bring the tables of the page up to date."""

    page: Path = ROOT / "docs" / "performance.md"
    """The page."""
    results: Path = ROOT / "results"
    """Where the JSON files are."""


def main(args: Performance) -> None:
    args.page.write_text(filled(args.page.read_text(), args.results))


def filled(page: str, results: Path) -> str:
    """The page with every table made anew; one whose data are not there says so."""

    def block(match: re.Match[str]) -> str:
        source, make = TABLES[match[1]]
        data = read_json(results / source) if (results / source).exists() else None
        text = "Not measured yet." if data is None else f"{made_on(data)}\n\n{make(data)}"
        return f"<!-- {match[1]} -->\n\n{text}\n\n<!-- end -->"

    return re.sub(r"<!-- ([a-z\-0-9]+) -->\n.*?<!-- end -->", block, page, flags=re.DOTALL)


def made_on(data: Data) -> str:
    made = data["versions"]
    devices = ", ".join(sorted(set(made["devices"])))
    cores = f", {data['cores']} cores" if "cores" in data else ""
    return f"{made['platform']} ({devices}{cores}), JAX {made['jax']}, Python {made['python']}."


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]], texts: int = 1) -> str:
    """A table whose first columns are text, the others numbers."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)).replace("| --- ", "|--- ")


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def peers(data: Data) -> str:
    rows = []
    for name, taken in data["peers"]["milliseconds"].items():
        ratio = 1.0 if name == OURS else data["ratios"].get(name, data["peers"].get("published_ratio"))
        spread = f"{number(min(taken))} to {number(max(taken))}"
        rows.append(
            (NAMES[name], number(timing.median(taken)), spread, "-" if ratio is None else f"{ratio:.2f}")
        )
    step = data["our_step"]
    text = markdown(("step of", "ms (median)", "range", "times ours"), rows)
    return (
        f"{text}\n\nOur update has {step['gflop_per_update']:.2f} GFLOP in its matrix products: with the "
        f"environment {step['gflop_per_second']:,.0f} GFLOP/s, {step['share_of_peak']:.0%} of the "
        f"{data['peak']['float32'] / 1e9:,.0f} GFLOP/s that this machine reaches in one large product."
    )


def updates(data: Data, of: str = "method") -> str:
    """Of methods, or of backbones."""
    rows = []
    for row in data.get("updates" if of == "method" else "backbones", []):
        measured = "left_out" not in row
        rows.append(
            (
                f"`{row[of]}`",
                row["size"],
                str(row["lanes"]),
                number(row["milliseconds"]) if measured else f"left out: {row['left_out']}",
                number(row.get("lane_updates_per_second")),
                number(row["gflop_per_lane_update"]),
                f"{row['share_of_peak']:.0%}" if measured else "-",
                number(row["program_bytes"] / 1e9 if "program_bytes" in row else None),
                number(row.get("compile_seconds")),
            )
        )
    header = (of, "size", "lanes", "ms per update", "lane updates/s", "GFLOP per lane", "of peak", "GB")
    return markdown((*header, "compile s"), rows, texts=2)


def trainings(data: Data) -> str:
    rows = [
        (
            row["env"],
            f"`{row['method']}`",
            str(row["lanes"]),
            number(row["iterations_per_second"]),
            number(row["lane_steps_per_second"]),
        )
        for row in data.get("training", [])
    ]
    return markdown(("task", "method", "lanes", "iterations/s", "lane steps/s"), rows, texts=2)


def environments(data: Data) -> str:
    rows = [
        (row["env"], str(row["lanes"]), str(row["workers"]), number(row["steps_per_second"]))
        for row in data["environment"]
    ]
    return markdown(("task", "lanes", "workers", "steps/s"), rows)


def memory(data: Data) -> str:
    rows = [
        (
            row["size"],
            f"{row['states']} / {row['actions']}",
            f"{row['replay_steps']:,}",
            f"{row['replay_bytes'] / 1e9:.2f}",
            f"{row['agent_bytes'] / 1e6:.1f}",
        )
        for row in data["memory"]["lanes"]
    ]
    return markdown(("size", "S / A", "steps kept", "replay GB", "agent MB"), rows)


def anatomy(data: Data) -> str:
    rows = [
        (
            row["case"],
            row["method"],
            row["precision"],
            number(row["updates_per_second"]),
            *(number(row[f"{kind}milliseconds"]) for kind in ("", "arithmetic_", "memory_", "launch_")),
            number(row["launches"]),
            number(row["gflop"]),
            f"{row['share_of_products']:.0%}" if row.get("share_of_products") is not None else "-",
            f"{row['trace_seconds']:.1f} + {row['compile_seconds']:.1f}",
        )
        for row in data["rows"]
    ]
    header = (
        "size:lanes",
        "method",
        "precision",
        "updates/s",
        "ms",
        "arithmetic ms",
        "memory ms",
        "launch ms",
    )
    last = ("operations", "GFLOP", "time in products", "trace + compile s")
    return markdown((*header, *last), rows, texts=3)


def growth(data: Data) -> str:
    """From the smallest to the largest value of each axis."""
    rows = []
    for axis in dict.fromkeys(row["axis"] for row in data["rows"]):
        for variant in dict.fromkeys(row["variant"] for row in data["rows"]):
            found = [row for row in data["rows"] if (row["axis"], row["variant"]) == (axis, variant)]
            values = ", ".join(f"{row['value']:,}: {number(row['milliseconds'])}" for row in found)
            rows.append((axis.replace("_", " "), variant, values))
    picture = "![Milliseconds per update against each size](images/growth.svg)\n\n" if PLOT.exists() else ""
    return picture + markdown(("axis", "GRD", "ms per update"), rows, texts=3)


TABLES: dict[str, tuple[str, Callable[[Data], str]]] = {
    "peers-quick-cpu": ("speed-quick-cpu.json", peers),
    "peers-cpu": ("speed-cpu.json", peers),
    "updates-cpu": ("speed-cpu.json", updates),
    "trainings-cpu": ("speed-cpu.json", trainings),
    "environments-cpu": ("speed-cpu.json", environments),
    "memory": ("speed-cpu.json", memory),
    "anatomy-cpu": ("anatomy-cpu.json", anatomy),
    "peers-h200": ("speed-h200.json", peers),
    "backbones-cpu": ("backbones-cpu.json", partial(updates, of="backbone")),
    "backbones-h200": ("backbones-h200.json", partial(updates, of="backbone")),
    "updates-h200": ("speed-h200.json", updates),
    "trainings-h200": ("speed-h200.json", trainings),
    "environments-h200": ("speed-h200.json", environments),
    "anatomy-h200": ("anatomy-h200.json", anatomy),
    "growth": ("growth.json", growth),
}


if __name__ == "__main__":
    main(tyro.cli(Performance))
