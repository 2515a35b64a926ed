"""Searches for edges to the reward, one after another: does the newest decide, or whatever any has excluded?

    python benchmarks/searches.py --first 42000 --problems 140 --out results/searches.json

Noisy problems of all families, those with 500 episodes or more, are searched whenever their episodes have
doubled, as GRD does it. Counted are strangers to the reward whose edge is still on at the end, and its
parents whose edge is off.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from apportion.bench.structure_noisy import Family, Noisy, draw
from apportion.graph import ENOUGH_SEGMENTS
from apportion.graph.looking import Searched, Seen, search
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

LEAST_EPISODES = 500
WORTH = 0.01  # of the totals' variance: a parent worth more is a large one
RULES = ("newest decides", "any excludes")


@dataclass(frozen=True)
class Searches:
    """Compare what is left after several searches."""

    out: Path
    """JSON file to write."""
    first: int = 42_000
    """Seed of the first problem of each family."""
    problems: int = 140
    """Seeds of each family; those with fewer episodes are left out."""


def main(args: Searches) -> None:
    seeds = range(args.first, args.first + args.problems)
    drawn = [(family, seed) for family in get_args(Family) for seed in seeds]
    rows = [counts(problem) for problem in map(_large, track(drawn, "problems")) if problem is not None]
    if not rows:
        sys.exit(f"none of these problems has {LEAST_EPISODES} episodes: draw more with --problems")
    names = rows[0][RULES[0]]
    found = {rule: {name: sum(row[rule][name] for row in rows) for name in names} for rule in RULES}
    write_json(
        args.out,
        {"first": args.first, "seeds": args.problems, "problems": len(rows), "versions": versions(), **found},
    )
    table = Table(title=f"After all searches of {len(rows)} problems")
    for column in ("", *names):
        table.add_column(column)
    for rule, numbers in found.items():
        table.add_row(rule, *map(str, numbers.values()))
    Console().print(table)


def _large(drawn: tuple[Family, int]) -> Noisy | None:
    problem = draw(drawn[1], drawn[0])
    return problem if len(problem.totals) >= LEAST_EPISODES else None


def counts(problem: Noisy) -> dict[str, dict[str, int]]:
    """By rule, at the end."""
    on = dict.fromkeys(RULES, np.ones(len(problem.parents), np.float32))
    for found in whenever_doubled(seen_in(problem)):
        for rule, after in zip(RULES, (newest, any_excludes), strict=True):
            on[rule] = after(found, on[rule])
    return {rule: _count(problem, edges > 0) for rule, edges in on.items()}


def seen_in(problem: Noisy) -> Seen:
    return Seen([*problem.observations], [*problem.actions], problem.totals, problem.terminated)


def whenever_doubled(seen: Seen) -> Iterator[Searched]:
    """What searches find of the first segments, when these are enough and each time they have doubled."""
    segments = ENOUGH_SEGMENTS
    while segments <= len(seen.totals):
        yield search(Seen(*(part[:segments] for part in seen)))
        segments *= 2


def newest(found: Searched, before: NDArray[np.float32]) -> NDArray[np.float32]:
    """GRD's own rule."""
    return np.concatenate(found.edges_after(np.split(before, [len(found.known[0])])))


def any_excludes(found: Searched, before: NDArray[np.float32]) -> NDArray[np.float32]:
    """Until an edge is found to be present."""
    known = np.concatenate(found.known[:2])
    return np.where(known == 0.5, before, known)


def _count(problem: Noisy, on: NDArray[np.bool_]) -> dict[str, int]:
    large = problem.parents & (problem.worth >= WORTH)
    return {
        "strangers": int(np.sum(~problem.parents)),
        "on": int(np.sum(on & ~problem.parents)),
        "parents": int(np.sum(problem.parents)),
        "off": int(np.sum(~on & problem.parents)),
        "large parents": int(np.sum(large)),
        "large off": int(np.sum(~on & large)),
    }


if __name__ == "__main__":
    main(tyro.cli(Searches))
