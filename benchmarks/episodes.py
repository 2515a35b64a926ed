"""How many episodes does it take? Reward edges found, and certified, against the number of episodes.

python benchmarks/episodes.py --out results/identification-episodes.json
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from apportion.bench.structure import BLOCKS, SEEDS, score_edges
from apportion.bench.structure_problems import FAMILIES, Family, draw
from apportion.graph import identify
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

COUNTS = (15, 30, 60, 120, 150, 250, 500, 1000)


@dataclass(frozen=True)
class Episodes:
    """Find the graphs of the same problems from fewer and more episodes."""

    out: Path
    """JSON file to write."""
    families: tuple[str, ...] = ("additive", "pairs", "goal distance", "correlated")
    """Families of problems, as in `apportion bench structure`."""
    problems: int = 5
    """Held-out problems of each family."""


def main(args: Episodes) -> None:
    rows = {
        name: [{"episodes": count, **scores(FAMILIES[name], count, args.problems)} for count in COUNTS]
        for name in args.families
    }
    write_json(
        args.out, {"config": {**asdict(args), "out": str(args.out)}, "versions": versions(), "rows": rows}
    )
    table = Table(title="F1 of reward edges (share certified)", title_justify="left")
    for column in ("family", *map(str, COUNTS)):
        table.add_column(column, justify="left" if column == "family" else "right")
    for name, points in rows.items():
        table.add_row(name, *(f"{p['f1']:.2f} ({p['certified']:.0%})" for p in points))
    Console().print(table)


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


if __name__ == "__main__":
    main(tyro.cli(Episodes))
