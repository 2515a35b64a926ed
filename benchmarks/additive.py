"""The additive reward that GRD starts from: how close is it to the reward of single steps?

    python benchmarks/additive.py --first 60000 --problems 40 --out results/additive.json
    python benchmarks/additive.py --problems 0 --runs runs/humanoid --out results/additive-humanoid.json

Fitted to the totals of noisy problems, or of trainings with a checkpoint. By one ridge regression, and by the
two that follow each other now; from the first quarter of the episodes, before any search for edges, and from
all of them: of every dimension, of those that a search leaves, and of those that GRD leaves, which are more.
Means of correlations with what steps earn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

import numpy as np
import tyro
from kept import additive, replayed
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from searches import newest, seen_in

from apportion.bench.structure_noisy import Family, draw
from apportion.graph import additive_fit, looking
from apportion.graph.looking import Seen
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

LEAST = 20  # episodes of a quarter
FITS = ("one fit", "two fits")


@dataclass(frozen=True)
class Additive:
    """Compare additive rewards with those of single steps."""

    out: Path
    """JSON file to write."""
    first: int = 60_000
    """Seed of the first problem of each family."""
    problems: int = 40
    """Problems of each family."""
    few: int | None = None
    """Episodes before any search; not given: a quarter, and 20 at the least."""
    runs: tuple[Path, ...] = ()
    """Run folders of trainings, each with a checkpoint; their first lanes are looked at."""


class Told(NamedTuple):
    """Segments, and what their steps earn."""

    name: str
    seen: Seen
    paid: list[NDArray[Any]]


def main(args: Additive) -> None:
    count = len(get_args(Family)) * args.problems + len(args.runs)
    rows: list[dict[str, Any]] = [
        {"of": each.name, **study(each, args.few)} for each in track(_all(args), "rewards", total=count)
    ]
    write_json(
        args.out,
        {"first": args.first, "problems": args.problems, "versions": versions(), "rows": rows},
    )
    table = Table(title="Mean correlation with what steps earn")
    ways = [key for key in rows[0] if key != "of"]
    for column in ("", "number", *ways):
        table.add_column(column)
    for name in dict.fromkeys(row["of"] for row in rows):
        mine = [row for row in rows if row["of"] == name]
        means = (float(np.mean([row[way] for row in mine])) for way in ways)
        table.add_row(name, str(len(mine)), *(f"{mean:.3f}" for mean in means))
    Console(width=160).print(table)


def _all(args: Additive) -> Iterator[Told]:
    for family in get_args(Family):
        for seed in range(args.first, args.first + args.problems):
            problem = draw(seed, family)
            yield Told(family, seen_in(problem), problem.paid)
    for run in args.runs:
        yield Told(run.name, *replayed(run))


def study(told: Told, few: int | None) -> dict[str, float]:
    """Correlations, by episodes, dimensions and fits."""
    every = np.ones(told.seen.observations[0].shape[1] + told.seen.actions[0].shape[1], np.float32)
    with patch.object(looking, "_as_far_as_known", lambda known, seen: known):
        left = newest(looking.search(told.seen), every)
    few = few or max(LEAST, len(told.paid) // 4)
    ways = {
        "few, all": (few, every),
        "all": (len(told.paid), every),
        "left": (len(told.paid), left),
        "now": (len(told.paid), newest(looking.search(told.seen), every)),
    }
    return {
        f"{way}, {fits}": _correlation(told, episodes, on > 0, fits)
        for way, (episodes, on) in ways.items()
        for fits in FITS
    }


def _correlation(told: Told, episodes: int, on: NDArray[np.bool_], fits: str) -> float:
    rows = told.seen.rows(np.arange(len(told.paid)) < episodes)
    totals, paid = told.seen.totals[:episodes], told.paid[:episodes]
    if fits == "two fits":
        return additive(rows, totals, on, paid)
    with patch.object(additive_fit, "_contributions", lambda z, weights: np.ones(len(weights))):
        return additive(rows, totals, on, paid)  # the second charges all alike, as the first does


if __name__ == "__main__":
    main(tyro.cli(Additive))
