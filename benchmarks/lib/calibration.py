"""Does a confidence hold? Verdicts on noisy problems (noisy.py), compared with the truth.

A verdict "present" is right if the dimension feeds the reward, one of "absent" if it does not, or is worth
less than the negligible share of the totals' variance. An undecided one counts as what its graph says.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apportion.graph import Identification, identify
from lib.noisy import NOISES, Family, Noisy, draw

SEEDS = {"dev": range(1000), "train": range(1000, 2000), "held-out": range(36_000, 37_000)}
NEGLIGIBLE = 0.01
BINS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)
DENIED = 0.95  # a parent that is said to be absent with this confidence is surely denied


class Outcome(NamedTuple):
    """What was said about the dimensions [S + A] of a problem, and what is true."""

    seed: int
    family: Family
    edges: NDArray[np.bool_]
    confidence: NDArray[np.float64]
    undecided: NDArray[np.bool_]
    parents: NDArray[np.bool_]
    worth: NDArray[np.float64]
    certified: bool
    traits: dict[str, float]
    cpu_seconds: float

    @property
    def right(self) -> NDArray[np.bool_]:
        return np.where(self.edges, self.parents, ~self.matter)

    @property
    def matter(self) -> NDArray[np.bool_]:
        """Parents that are not negligible."""
        return self.parents & (self.worth >= NEGLIGIBLE)

    @property
    def denied(self) -> NDArray[np.bool_]:
        return self.matter & ~self.edges & (self.confidence >= DENIED)


def run_calibration(part: str, problems: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Reliability of confidences, and what was denied, over so many problems of each family in turn."""
    families: tuple[Family, ...] = get_args(Family)
    outcomes = []
    for seed in SEEDS[part][:problems]:
        family = families[seed % len(families)]
        outcomes.append(_outcome(seed, family, draw(seed, family)))
        if len(outcomes) % 20 == 0:
            tell(f"{len(outcomes)} noisy problems")
    apart = {name: [each for each in outcomes if each.family == name] for name in families}
    return {**calibration(outcomes), "families": {name: calibration(mine) for name, mine in apart.items()}}


def _outcome(seed: int, family: Family, problem: Noisy) -> Outcome:
    start = time.process_time()
    found = identify(
        problem.observations,
        problem.actions,
        problem.totals,
        negligible=NEGLIGIBLE,
        terminated=problem.terminated,
    )
    seconds = time.process_time() - start
    edges, confidence, verdict = (to_reward(found, part) for part in ("graph", "confidence", "verdict"))
    undecided = verdict == "undecided"
    facts = (problem.parents, problem.worth, found.certificate.reward, problem.traits)
    return Outcome(seed, family, edges, confidence, undecided, *facts, seconds)


def to_reward(found: Identification, part: str) -> NDArray[Any]:
    """[S + A] the edges to the reward, of one part of what was found."""
    graph = getattr(found, part)
    return np.concatenate([graph.state_to_reward, graph.action_to_reward])


def calibration(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All numbers of the table, and the seeds of problems in which a parent was surely denied."""
    sure, right, edges, undecided, matter, denied = (
        np.concatenate([np.zeros(0, np.bool_), *(getattr(each, name) for each in outcomes)])
        for name in ("confidence", "right", "edges", "undecided", "matter", "denied")
    )
    certified = [each for each in outcomes if each.certified]
    denying = [each.seed for each in certified if each.denied.any()]
    return {
        "problems": len(outcomes),
        "verdicts": len(sure),
        "bins": [_bin(sure, right, low, high) for low, high in pairwise(BINS)],
        "right_at_95": _mean(right[sure >= 0.95]),
        "right_at_99": _mean(right[sure >= 0.99]),
        "brier": _mean((sure - right) ** 2),
        "parents": int(matter.sum()),
        "parents_found": _mean(edges[matter]),
        "parents_surely_denied": _mean(denied[matter]),
        "certified": len(certified) / max(len(outcomes), 1),
        "certified_that_deny": len(denying) / max(len(certified), 1),
        "denying_seeds": denying,
        "undecided": _mean(undecided),
        "by_noise": {str(noise): _by_noise(outcomes, noise) for noise in NOISES},
        "cpu_seconds": _mean(np.array([each.cpu_seconds for each in outcomes])),
    }


def _bin(sure: NDArray[Any], right: NDArray[Any], low: float, high: float) -> dict[str, float]:
    mine = (sure >= low) & ((sure < high) | (high == 1.0))
    said, true = _mean(sure[mine]), _mean(right[mine])
    return {"from": low, "to": high, "verdicts": int(mine.sum()), "confidence": said, "right": true}


def _by_noise(outcomes: Sequence[Outcome], noise: float) -> dict[str, float]:
    mine = [each for each in outcomes if each.traits["noise"] == noise]
    hits = [2 * (o.edges & o.parents).sum() / max(o.edges.sum() + o.parents.sum(), 1) for o in mine]
    undecided = np.concatenate([np.zeros(0), *(each.undecided for each in mine)])
    return {"problems": len(mine), "f1": _mean(np.array(hits)), "undecided": _mean(undecided)}


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def show_calibration(console: Console, part: str, data: dict[str, Any]) -> None:
    """Reliability by bin, then the shares that matter, of all problems and of each family."""
    title = f"Verdicts on {data['problems']} noisy {part} problems: how often are they right?"
    table = Table(title=title, title_justify="left")
    for column in ("confidence", "verdicts", "said", "right"):
        table.add_column(column, justify="right")
    for each in data["bins"]:
        if each["verdicts"]:
            shares = (f"{each[name]:.3f}" for name in ("confidence", "right"))
            table.add_row(f"{each['from']:g} to {each['to']:g}", f"{each['verdicts']:,}", *shares)
    console.print(table)
    console.print(_by_family(data))
    for noise, each in data["by_noise"].items():
        if each["problems"]:
            scores = f"F1 {each['f1']:.3f}, {each['undecided']:.0%} undecided"
            console.print(f"noise {float(noise):.0%} of the variance: {scores}")


def _by_family(data: dict[str, Any]) -> Table:
    """A row for all problems, then one for each family that has any."""
    title = f"Parents are worth >= {NEGLIGIBLE:.0%}; denied: said to be absent at >= {DENIED}"
    table = Table(title=title, title_justify="left")
    columns = {
        "right at >= .95": "right_at_95",
        "at >= .99": "right_at_99",
        "Brier": "brier",
        "undecided": "undecided",
        "parents found": "parents_found",
        "denied": "parents_surely_denied",
        "certified": "certified",
        "of these deny one": "certified_that_deny",
    }
    for column in ("family", "problems", *columns):
        table.add_column(column, justify="right")
    for name, part in {"all": data, **data["families"]}.items():
        if part["problems"]:
            shares = (f"{part[key]:.3f}" for key in columns.values())
            table.add_row(name, str(part["problems"]), *shares)
    return table
