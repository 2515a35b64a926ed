"""How many episodes does it take? Reward edges found, and certified, against the number of episodes.

python benchmarks/episodes.py --out results/identification-episodes.json --plot docs/figures/episodes.svg
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.graph import identify
from apportion.report import drawing
from apportion.runs.atomic import write_json
from apportion.runs.folder import read_json, versions
from lib import command
from lib.problems import FAMILIES, Family, draw
from structure import BLOCKS, SEEDS, score_edges

COUNTS = (15, 30, 60, 120, 150, 250, 500, 1000)


@dataclass(frozen=True)
class Episodes:
    """Find the graphs of the same problems from fewer and more episodes."""

    out: Path
    """JSON file to write; read instead, where it is there."""
    families: tuple[str, ...] = ("additive", "pairs", "goal distance", "correlated")
    """Families of problems, as in structure.py."""
    problems: int = 5
    """Held-out problems of each family."""
    plot: Path | None = None
    """Also draw the scores into this file."""


def main(args: Episodes) -> None:
    if not args.out.exists():
        config = {**asdict(args), "out": str(args.out), "plot": None}
        write_json(args.out, {"config": config, "versions": versions(), "rows": measured(args)})
    rows = read_json(args.out)["rows"]
    print(f"| family | {' | '.join(map(str, COUNTS))} |")
    print(f"|---|{'---:|' * len(COUNTS)}")
    for name, points in rows.items():
        cells = [f"{point['f1']:.2f} ({point['certified']:.0%})" for point in points]
        print(f"| {name} | {' | '.join(cells)} |")
    if args.plot is not None:
        plot(rows, args.plot)


def measured(args: Episodes) -> dict[str, list[dict[str, float]]]:
    return {
        name: [{"episodes": count, **scores(FAMILIES[name], count, args.problems)} for count in COUNTS]
        for name in args.families
    }


def scores(family: Family, episodes: int, problems: int) -> dict[str, float]:
    f1, dynamics, certified = [], [], []
    for seed in SEEDS["held-out"][:problems]:
        problem = draw(replace(family, episodes=episodes), seed)
        found = identify(
            *(part[:episodes] for part in (problem.observations, problem.actions, problem.totals))
        )
        f1.append(score_edges(found, problem.graph, BLOCKS["reward"])["f1"])
        dynamics.append(score_edges(found, problem.graph, BLOCKS["dynamics"])["f1"])
        certified.append(found.certificate.reward)
    return {
        "f1": float(np.mean(f1)),
        "dynamics_f1": float(np.mean(dynamics)),
        "certified": float(np.mean(certified)),
        "worst_certified_f1": min((f for f, sure in zip(f1, certified, strict=True) if sure), default=1.0),
    }


def plot(rows: dict[str, Any], path: Path) -> None:
    """F1 of the reward edges against the number of episodes; hollow where nothing was certified."""
    with drawing.drawing():
        figure = drawing.new_figure(6, 3)
        axes = figure.subplots()
        for number, (name, points) in enumerate(rows.items()):
            counts, f1 = [p["episodes"] for p in points], [p["f1"] for p in points]
            colour = drawing.colour(number)
            faces = [colour if p["certified"] > 0.5 else "white" for p in points]
            axes.plot(counts, f1, color=colour, label=name, linewidth=1)
            axes.scatter(counts, f1, s=22, c=faces, edgecolors=colour, zorder=3)
        axes.set_xscale("log")
        axes.set_xticks(COUNTS, ["" if count == 120 else str(count) for count in COUNTS], minor=False)
        axes.minorticks_off()
        axes.set(xlabel="episodes (hollow: not certified)", ylabel="F1 of reward edges", ylim=(0, 1.05))
        axes.legend()
        drawing.save(figure, path)


if __name__ == "__main__":
    command.start(main, Episodes)
