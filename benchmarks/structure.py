"""How well are causal graphs found? `apportion.graph` on problems whose graph is known.

    python benchmarks/structure.py --part held-out --out results/structure.json
    python benchmarks/structure.py --calibrate 400 --part held-out --out results/structure-calibration.json
    python benchmarks/structure.py --kinds 40 --out results/strangers.json
    python benchmarks/structure.py --near-copies 100 --out results/near-copies.json

The first scores edges, family by family. The others ask whether verdicts hold: with noise as real data have
it, on kinds of problems that the search was not made for, and where a dimension has a second sensor.
Seeds are split once and for all: whoever improves the search looks at train and dev problems, and reports the
held-out ones.
"""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from apportion.core.config import check
from apportion.core.spec import Graph
from apportion.graph import Identification, identify
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.training.evaluate import f1, pearson
from lib import command, kinds
from lib.calibration import SEEDS as NOISY_SEEDS
from lib.calibration import run_calibration, show_calibration
from lib.near_copies import run_near_copies
from lib.problems import FAMILIES, Family, Problem, draw

SEEDS = {"train": range(100), "dev": range(100, 200), "held-out": range(1000, 1100)}
BLOCKS = {
    "reward": ("state_to_reward", "action_to_reward"),
    "dynamics": ("state_to_state", "action_to_state"),
}
QUICK_STATES, QUICK_ROWS = 30, 120_000


@dataclass(frozen=True)
class Structure:
    """Find the graphs of synthetic problems, and compare them with the true ones."""

    part: Literal["train", "dev", "held-out"] = "dev"
    """Which seeds the problems are drawn from."""
    problems: int = 5
    """Problems of each family."""
    families: tuple[str, ...] = ()
    """Families to look at; all when none is named."""
    calibrate: int = 0
    """Instead of the families: so many noisy problems, to see whether confidences hold."""
    kinds: int = 0
    """Instead: so many problems of each kind that the search was not made for."""
    near_copies: int = 0
    """Instead: so many logs in which a state has a second sensor."""
    out: Path | None = None
    """JSON file to write."""
    quick: bool = False
    """One problem of each family that is not large: up to 30 states and 120,000 steps."""

    def __post_init__(self) -> None:
        most = len(SEEDS[self.part])
        check(1 <= self.problems <= most, f"problems={self.problems} must be between 1 and {most}")
        most = len(NOISY_SEEDS[self.part])
        check(0 <= self.calibrate <= most, f"calibrate={self.calibrate} must be between 0 and {most}")
        for name in self.families:
            check(name in FAMILIES, f"families: {name!r} is none of {', '.join(map(repr, FAMILIES))}")


def main(flags: Structure) -> None:
    data = run(flags)
    if flags.out is not None:
        write_json(flags.out, data)
    show(Console(), data)


def tell(line: str) -> None:
    """How far it is, apart from the result."""
    print(line, file=sys.stderr, flush=True)


def run(flags: Structure) -> dict[str, Any]:
    """What was asked for, with what made it."""
    config = {**asdict(flags), "families": list(flags.families), "out": None}
    made = {"command": command.given(), "config": config, "versions": versions()}
    if flags.calibrate:
        return {**made, "calibration": run_calibration(flags.part, flags.calibrate, tell)}
    if flags.kinds:
        return {**made, "kinds": kinds.run_kinds(flags.kinds, tell)}
    if flags.near_copies:
        return {**made, **run_near_copies(flags.near_copies, tell)}
    return {**made, **run_families(flags)}


def run_families(flags: Structure) -> dict[str, Any]:
    """Scores of every problem, their means by family and over families."""
    results: dict[str, dict[str, Any]] = {}
    for name, family in _chosen(flags).items():
        seeds = SEEDS[flags.part][: 1 if flags.quick else flags.problems]
        problems = [{"seed": seed, **_score_problem(family, seed)} for seed in seeds]
        results[name] = {"family": asdict(family), "mean": _mean(problems), "problems": problems}
        tell(f"{name}: reward F1 {results[name]['mean']['reward']['f1']:.3f}")
    return {
        "mean": _mean([r["mean"] for r in results.values() if r["family"]["enough"]] or [{}]),
        "families": results,
    }


def _chosen(flags: Structure) -> dict[str, Family]:
    families = {name: FAMILIES[name] for name in flags.families or FAMILIES}
    if not flags.quick:
        return families
    return {
        name: family
        for name, family in families.items()
        if family.states <= QUICK_STATES and family.steps * family.episodes <= QUICK_ROWS
    }


def _score_problem(family: Family, seed: int) -> dict[str, Any]:
    problem = draw(family, seed)
    given = family.episodes
    wall, cpu = time.perf_counter(), time.process_time()
    found = identify(problem.observations[:given], problem.actions[:given], problem.totals[:given])
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    return {
        **{block: score_edges(found, problem.graph, names) for block, names in BLOCKS.items()},
        "correlation": _correlation(found, problem, given),
        "certified": float(found.certificate.reward),
        "notes": found.certificate.notes,
        **seconds,
    }


def score_edges(found: Identification, truth: Graph, names: tuple[str, ...]) -> dict[str, float]:
    """F1, precision, recall and area under the ROC curve over some blocks of edges together; how often what
    is said with a confidence of .95 is right, and the share that is undecided."""
    on, sure, true = (_joined(graph, names) for graph in (found.graph, found.confidence, truth))
    undecided = float(np.mean(_joined(found.verdict, names) == "undecided"))
    certain = (on == true)[sure >= 0.95]
    return {
        **f1(on, true),
        "auroc": auroc(np.where(on, sure, 1 - sure), true),
        "sure_right": float(np.mean(certain)) if len(certain) else 1.0,
        "undecided": undecided,
    }


def auroc(score: NDArray[Any], truth: NDArray[Any]) -> float:
    """The chance that a true edge has a higher score than another one; NaN when all are alike."""
    true = np.asarray(truth, np.bool_)
    edges, others = int(true.sum()), int((~true).sum())
    if not edges or not others:
        return float("nan")
    ranks = stats.rankdata(score)
    return float((ranks[true].sum() - edges * (edges + 1) / 2) / (edges * others))


def _joined(graph: Graph, names: tuple[str, ...]) -> NDArray[Any]:
    return np.concatenate([np.asarray(getattr(graph, name)).ravel() for name in names])


def _correlation(found: Identification, problem: Problem, given: int) -> float:
    """Of the closed-form reward with the true one, over steps of episodes that the search has not seen."""
    unseen = zip(problem.observations[given:], problem.actions[given:], strict=True)
    rows = np.concatenate([np.concatenate([o[:-1], a], axis=1) for o, a in unseen])
    return pearson(found.reward_model.predict(rows), np.concatenate(problem.rewards[given:]))


def _mean(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of all numbers, at any depth."""
    mean: dict[str, Any] = {}
    for name, value in results[0].items():
        values = [result[name] for result in results]
        if isinstance(value, dict):
            mean[name] = _mean(values)
        elif isinstance(value, float):
            mean[name] = float(np.mean(values))
    return mean


def show(console: Console, data: dict[str, Any]) -> None:
    """The tables of whatever was asked for."""
    if "calibration" in data:
        show_calibration(console, data["config"]["part"], data["calibration"])
    elif "kinds" in data:
        console.print(kinds.table(data["kinds"]))
    elif "pairs" in data:
        console.print("pairs:", data["pairs"], "other edges:", data["other edges"])
    else:
        show_families(console, data)


def show_families(console: Console, data: dict[str, Any]) -> None:
    """One line for each family, and the mean over those with enough data."""
    count = len(next(iter(data["families"].values()))["problems"])
    title = f"Graphs found in {data['config']['part']} problems, {count} of each family"
    table = Table(title=title, title_justify="left")
    for column in (
        "family", "reward F1", "AUROC", "dynamics F1", "AUROC", "correlation", "certified", "CPU s",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "family" else "right")
    enough = {name: r for name, r in data["families"].items() if r["family"]["enough"]}
    for name, result in enough.items():
        table.add_row(name, *_cells(result["mean"]))
    table.add_section()
    if enough:
        table.add_row("mean over families", *_cells(data["mean"]), end_section=True)
    for name, result in data["families"].items():
        if name not in enough:
            table.add_row(f"{name} (cannot tell)", *_cells(result["mean"]))
    console.print(table)


def _cells(mean: dict[str, Any]) -> list[str]:
    edges = [f"{mean[block][score]:.3f}" for block in BLOCKS for score in ("f1", "auroc")]
    return [*edges, f"{mean['correlation']:.3f}", f"{mean['certified']:.0%}", f"{mean['cpu_seconds']:.1f}"]


if __name__ == "__main__":
    command.start(main, Structure)
