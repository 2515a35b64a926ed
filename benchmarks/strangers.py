"""Is the search for the graph sure and wrong on problems of kinds that it was not made for?

    python benchmarks/strangers.py --problems 40 --out results/strangers.json

`stranger_kinds.py` says what is odd about each kind. A verdict is wrong if a cause that is worth 1% is called
absent, or what is no cause present; proxies of a hidden cause that are called present are counted apart.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stranger_kinds import KINDS, Problem, draw

from apportion.bench.structure_calibration import DENIED, NEGLIGIBLE, to_reward
from apportion.core.config import UserError
from apportion.graph import identify
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

SUREST = 0.99
HEADS = {
    "sure": f">= {DENIED}",
    "right": "right",
    "surest": f">= {SUREST}",
    "right_of_surest": "right",
    "denied": "denied",
    "bystanders": "bystanders",
    "proxies": "proxies",
    "undecided": "undecided",
    "certified": "certified",
}


@dataclass(frozen=True)
class Strangers:
    """Draw problems of odd kinds, search for their graphs, and count what was sure and wrong."""

    out: Path | None = None
    """JSON file to write."""
    problems: int = 40
    """Problems of each kind."""
    first: int = 0
    """The first seed."""
    kinds: tuple[str, ...] = ()
    """Kinds to draw; all when none is named."""


def main(args: Strangers) -> None:
    unknown = [kind for kind in args.kinds if kind not in KINDS]
    if unknown:
        raise UserError(f"no kind {unknown[0]!r}: choose from {', '.join(KINDS)}")
    console = Console()
    rows = {}
    for kind in args.kinds or KINDS:
        seeds = range(args.first, args.first + args.problems)
        found = [judged(draw(seed, kind)) for seed in track(seeds, kind, console=console, transient=True)]
        rows[kind] = summary({name: np.concatenate([each[name] for each in found]) for name in found[0]})
    console.print(table(rows))
    if args.out is not None:
        config = asdict(args) | {"out": None, "kinds": list(rows)}
        write_json(args.out, {"config": config, "versions": versions(), "kinds": rows})


def judged(problem: Problem) -> dict[str, NDArray[Any]]:
    """What is said of each dimension, and what is true."""
    found = identify(problem.observations, problem.actions, problem.totals, negligible=NEGLIGIBLE)
    edges, confidence, verdict = (to_reward(found, part) for part in ("graph", "confidence", "verdict"))
    matters = problem.cause & (problem.worth >= NEGLIGIBLE)
    return {
        "confidence": confidence,
        "undecided": verdict == "undecided",
        "denied": ~edges & matters,
        "bystander": edges & ~problem.cause & ~problem.proxy,
        "proxy": edges & problem.proxy,
        "certified": np.array([found.certificate.reward]),
    }


def summary(said: dict[str, NDArray[Any]]) -> dict[str, float]:
    wrong = said["denied"] | said["bystander"] | said["proxy"]
    sure, surest = said["confidence"] >= DENIED, said["confidence"] >= SUREST
    return {
        "sure": int(sure.sum()),
        "right": share(~wrong[sure]),
        "surest": int(surest.sum()),
        "right_of_surest": share(~wrong[surest]),
        "denied": int(said["denied"][sure].sum()),
        "bystanders": int(said["bystander"][sure].sum()),
        "proxies": int(said["proxy"][sure].sum()),
        "undecided": share(said["undecided"]),
        "certified": share(said["certified"]),
    }


def share(holds: NDArray[np.bool_]) -> float:
    return round(float(holds.mean()), 4) if len(holds) else 1.0


def table(rows: dict[str, dict[str, float]]) -> Table:
    made = Table("kind", *HEADS.values(), title="Verdicts on problems of odd kinds")
    for kind, row in rows.items():
        cells = [f"{row[name]:.1%}" if isinstance(row[name], float) else str(row[name]) for name in HEADS]
        made.add_row(kind, *cells)
    return made


if __name__ == "__main__":
    try:
        main(tyro.cli(Strangers))
    except UserError as error:
        raise SystemExit(str(error)) from None
