"""Figures of docs/identification.md, drawn from the JSON files in results/.

python benchmarks/pictures.py --out docs/figures
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import tyro

matplotlib.use("svg")
from matplotlib import pyplot

RESULTS = Path(__file__).parents[1] / "results"
REWARD, DYNAMICS = "#1b6ca8", "#d1791b"


@dataclass(frozen=True)
class Pictures:
    """Draw the figures of the identification page."""

    out: Path
    """Folder to write SVG files to."""


def main(args: Pictures) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    # Same data, same file: no dates, no random names.
    pyplot.rcParams.update({"svg.hashsalt": "apportion", "svg.fonttype": "none", "font.size": 9})
    for name, draw in (("structure", families), ("identification-episodes", episodes)):
        figure = draw(json.loads((RESULTS / f"{name}.json").read_text()))
        figure.savefig(
            args.out / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight", transparent=False
        )
        pyplot.close(figure)


def families(data: dict[str, Any]) -> Any:
    """F1 of every problem as a dot, family by family."""
    names = list(data["families"])
    figure, axes = pyplot.subplots(figsize=(7, 0.24 * len(names) + 0.8))
    for row, name in enumerate(names):
        for block, colour, up in (("reward", REWARD, -0.15), ("dynamics", DYNAMICS, 0.15)):
            f1 = [problem[block]["f1"] for problem in data["families"][name]["problems"]]
            spread = 0.02 * (np.arange(len(f1)) - (len(f1) - 1) / 2)
            axes.scatter(
                f1, row + up + spread, s=14, color=colour, label=f"{block} edges" if row == 0 else None
            )
    certain = [data["families"][name]["mean"]["certified"] for name in names]
    labels = [
        name if sure > 0.5 else f"{name} (not certified)" for name, sure in zip(names, certain, strict=True)
    ]
    axes.set_yticks(range(len(names)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("F1")
    axes.set_xlim(-0.03, 1.03)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper left", frameon=False)
    return figure


def episodes(data: dict[str, Any]) -> Any:
    """F1 of the reward edges against the number of episodes; hollow where nothing was certified."""
    figure, axes = pyplot.subplots(figsize=(6, 3))
    colours = (REWARD, DYNAMICS, "#3a8f5c", "#8b5a9f")
    for (name, points), colour in zip(data["rows"].items(), colours, strict=False):
        counts, f1 = [p["episodes"] for p in points], [p["f1"] for p in points]
        axes.plot(counts, f1, color=colour, label=name, linewidth=1)
        faces = [colour if p["certified"] > 0.5 else "white" for p in points]
        axes.scatter(counts, f1, s=22, c=faces, edgecolors=colour, zorder=3)
    axes.set_xscale("log")
    ticks = [p["episodes"] for p in points]
    axes.set_xticks(ticks, ["" if tick == 120 else str(tick) for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("episodes (hollow: not certified)")
    axes.set_ylabel("F1 of reward edges")
    axes.set_ylim(0, 1.05)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(tyro.cli(Pictures))
