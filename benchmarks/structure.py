"""Which dimensions feed the reward, and how sure is that? `apportion.graph` beside the truth.

    python benchmarks/structure.py families --part held-out --out results/structure.json
    python benchmarks/structure.py noisy --problems 400 --part held-out --out structure-calibration.json
    python benchmarks/structure.py strangers --problems 40 --out results/strangers.json
    python benchmarks/structure.py episodes --part held-out --problems 6 --out episodes.json
    python benchmarks/structure.py --show results/strangers.json

Are graphs exact where data are clean? Do verdicts hold: with noise as real data have it, and on kinds of
problems that the search was not made for? And how many episodes does it take? A verdict "present" is right if
the dimension feeds the reward, one of "absent" if it does not, or is worth less than the negligible share of
the totals' variance; an undecided one counts as what its graph says. Seeds are split once and for all:
whoever improves the search looks at train and dev problems, and reports the held-out ones.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import tyro
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import REWARD_BLOCKS
from apportion.graph import identify
from apportion.runs.atomic import read_json, write_json
from apportion.runs.folder import versions
from apportion.training.evaluate import f1, pearson
from lib import command, kinds, noisy, problems
from lib.command import markdown, tell
from lib.noisy import NOISES, Problem
from lib.problems import FAMILIES, Family

SEEDS = {"dev": range(1000), "train": range(1000, 2000), "held-out": range(36_000, 37_000)}
NEGLIGIBLE = 0.01
BINS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)
SURE, SUREST = 0.95, 0.99


@dataclass(frozen=True)
class Structure:
    """Find what feeds the reward of synthetic problems, and compare it with the truth."""

    question: Annotated[Literal["families", "noisy", "strangers", "episodes"], tyro.conf.Positional] = "noisy"
    """Clean problems of known graphs, noisy ones, odd kinds, or noisy ones with fewer and more episodes."""
    part: Literal["train", "dev", "held-out"] = "dev"
    """Which seeds clean and noisy problems are drawn from."""
    problems: int = 5
    """Noisy problems in all; of each family or kind; of each family and number of episodes."""
    out: Path | None = None
    """JSON file to write."""
    show: Path | None = None
    """Print results that were written before, and measure nothing."""

    def __post_init__(self) -> None:
        most = len(SEEDS[self.part])
        check(1 <= self.problems <= most, f"problems={self.problems} must be between 1 and {most}")


def main(flags: Structure) -> None:
    data = run(flags) if flags.show is None else read_json(flags.show)
    if flags.out is not None:
        write_json(flags.out, data)
    print(shown(data))


def run(flags: Structure) -> dict[str, Any]:
    """What was asked for, with what made it."""
    config = {**asdict(flags), "out": None, "show": None}
    made = {"command": command.given(), "config": config, "versions": versions()}
    if flags.question == "families":
        return {**made, "families": run_families(flags.part, flags.problems)}
    if flags.question == "strangers":
        return {**made, "kinds": run_kinds(flags.problems)}
    if flags.question == "episodes":
        return {**made, "episodes": run_episodes(flags.part, flags.problems)}
    return {**made, "calibration": run_noisy(flags.part, flags.problems)}


def shown(data: dict[str, Any]) -> str:
    """The tables of whatever was asked for."""
    if "families" in data:
        return families_table(data["families"])
    if "kinds" in data:
        return kinds_table(data["kinds"])
    if "episodes" in data:
        return episodes_table(data["episodes"])
    return f"{bins_table(data['calibration'])}\n\n{noisy_table(data['calibration'])}"


# --- Verdicts, and the truth


class Outcome(NamedTuple):
    """What was said about the dimensions [S + A] of a problem, and what is true."""

    seed: int
    name: str  # of its family or kind
    edges: NDArray[np.bool_]
    confidence: NDArray[np.float64]
    undecided: NDArray[np.bool_]
    parents: NDArray[np.bool_]
    matter: NDArray[np.bool_]  # parents that are not negligible
    proxies: NDArray[np.bool_]
    certified: bool
    noise: float
    cpu_seconds: float

    @property
    def right(self) -> NDArray[np.bool_]:
        return np.where(self.edges, self.parents, ~self.matter)

    @property
    def sure(self) -> NDArray[np.bool_]:
        return self.confidence >= SURE


def judged(seed: int, name: str, problem: Problem) -> Outcome:
    began = time.process_time()
    observations, actions, totals = problem.observations, problem.actions, problem.totals
    found = identify(observations, actions, totals, negligible=NEGLIGIBLE, terminated=problem.terminated)
    seconds = time.process_time() - began
    edges, confidence, verdict = (
        np.concatenate([graph.state_to_reward, graph.action_to_reward])
        for graph in (found.graph, found.confidence, found.verdict)
    )
    return Outcome(
        seed,
        name,
        edges,
        confidence,
        verdict == "undecided",
        problem.parents,
        problem.parents & (problem.worth >= NEGLIGIBLE),
        problem.proxies,
        found.certificate.reward,
        problem.noise,
        seconds,
    )


def _joined(outcomes: Sequence[Outcome], name: str) -> NDArray[Any]:
    """Of all dimensions of all problems."""
    return np.concatenate([np.zeros(0, np.bool_), *(getattr(each, name) for each in outcomes)])


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


# --- Clean problems


def run_families(part: str, count: int) -> dict[str, Any]:
    """Scores of every problem of each family, and their means."""
    results: dict[str, dict[str, Any]] = {}
    for name, family in FAMILIES.items():
        problems = [{"seed": seed, **_scored(family, seed)} for seed in SEEDS[part][:count]]
        mean = {key: _mean(np.array([each[key] for each in problems])) for key in problems[0]}
        results[name] = {"family": asdict(family), "mean": mean, "problems": problems}
        tell(f"{name}: reward F1 {mean['reward']:.3f}, dynamics F1 {mean['dynamics']:.3f}")
    return results


def _scored(family: Family, seed: int) -> dict[str, float]:
    """F1 of edges to the reward and to next states, whether it is certified, and the reward's correlation
    with the true one over steps of other episodes."""
    problem, given, began = problems.draw(family, seed), family.episodes, time.process_time()
    found = identify(problem.observations[:given], problem.actions[:given], problem.totals[:given])
    seconds = time.process_time() - began
    scores = {
        block: f1(
            *(
                np.concatenate([getattr(graph, n).ravel() for n in names])
                for graph in (found.graph, problem.graph)
            )
        )["f1"]
        for block, names in (("reward", REWARD_BLOCKS), ("dynamics", ("state_to_state", "action_to_state")))
    }
    unseen = zip(problem.observations[given:], problem.actions[given:], strict=True)
    rows = np.concatenate([np.concatenate([o[:-1], a], axis=1) for o, a in unseen])
    correlation = pearson(found.reward_model.predict(rows), np.concatenate(problem.rewards[given:]))
    certified = float(found.certificate.reward)
    return {**scores, "certified": certified, "correlation": correlation, "cpu_seconds": seconds}


def families_table(results: dict[str, Any]) -> str:
    """A line for each family; those whose data cannot tell come last."""
    columns = ("reward", "dynamics", "correlation", "certified", "cpu_seconds")
    order = sorted(results, key=lambda name: not results[name]["family"]["enough"])
    rows = [(name, *(f"{results[name]['mean'][key]:.3f}" for key in columns)) for name in order]
    return markdown(("family", "reward F1", "dynamics F1", "correlation", "certified", "CPU s"), rows)


# --- Noisy problems


def run_noisy(part: str, problems: int) -> dict[str, Any]:
    """Reliability of confidences, and what was denied, over so many problems of each family in turn."""
    families: tuple[noisy.Family, ...] = get_args(noisy.Family)
    outcomes = []
    for seed in SEEDS[part][:problems]:
        family = families[seed % len(families)]
        outcomes.append(judged(seed, family, noisy.draw(seed, family)))
        if len(outcomes) % 20 == 0:
            tell(f"{len(outcomes)} noisy problems")
    apart = {name: [each for each in outcomes if each.name == name] for name in families}
    return {**calibration(outcomes), "families": {name: calibration(mine) for name, mine in apart.items()}}


def calibration(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All numbers of the tables, and the seeds of problems in which a parent was surely denied."""
    confidence, right, edges, undecided, matter, sure = (
        _joined(outcomes, name) for name in ("confidence", "right", "edges", "undecided", "matter", "sure")
    )
    certified = [each for each in outcomes if each.certified]
    denying = [each.seed for each in certified if (each.matter & ~each.edges & each.sure).any()]
    return {
        "problems": len(outcomes),
        "verdicts": len(confidence),
        "bins": [_bin(confidence, right, low, high) for low, high in pairwise(BINS)],
        "right_at_95": _mean(right[sure]),
        "right_at_99": _mean(right[confidence >= SUREST]),
        "brier": _mean((confidence - right) ** 2),
        "parents": int(matter.sum()),
        "parents_found": _mean(edges[matter]),
        "parents_surely_denied": _mean((~edges & sure)[matter]),
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
    mine = [each for each in outcomes if each.noise == noise]
    hits = [2 * (o.edges & o.parents).sum() / max(o.edges.sum() + o.parents.sum(), 1) for o in mine]
    return {
        "problems": len(mine),
        "f1": _mean(np.array(hits)),
        "undecided": _mean(_joined(mine, "undecided")),
    }


def bins_table(data: dict[str, Any]) -> str:
    """How often verdicts are right, by the confidence that they were said with."""
    rows = [
        (f"{each['from']:g} to {each['to']:g}", f"{each['verdicts']:,}", *_numbers(each))
        for each in data["bins"]
        if each["verdicts"]
    ]
    return markdown(("confidence", "verdicts", "said on average", "right"), rows)


def noisy_table(data: dict[str, Any]) -> str:
    """The shares that matter, of all problems and of each family."""
    columns = {
        "right at >= 0.95": "right_at_95",
        "at >= 0.99": "right_at_99",
        "undecided": "undecided",
        "parents worth >= 1% found": "parents_found",
        "of these denied at >= 0.95": "parents_surely_denied",
        "certified": "certified",
    }
    rows = [
        (name, *(f"{part[key]:.1%}" for key in columns.values()))
        for name, part in {"all": data, **data["families"]}.items()
        if part["problems"]
    ]
    return markdown(("family", *columns), rows)


def _numbers(data: dict[str, Any]) -> list[str]:
    return [f"{data[name]:.3f}" for name in ("confidence", "right")]


# --- Noisy problems with fewer and more episodes

COUNTS = (30, 60, 120, 150, 250, 500, 1000)


def run_episodes(part: str, problems: int) -> list[dict[str, Any]]:
    """The same problems, so many of each family, with each number of episodes."""
    rows = []
    for count in COUNTS:
        outcomes = [
            judged(seed, family, noisy.draw(seed, family, count))
            for seed in SEEDS[part][:problems]
            for family in get_args(noisy.Family)
        ]
        rows.append({"episodes": count, **calibration(outcomes)})
        tell(f"{count} episodes: {rows[-1]['parents_found']:.0%} of parents found")
    return rows


def episodes_table(rows: list[dict[str, Any]]) -> str:
    """What is found, and how far it can be trusted, for each number of episodes."""
    columns = {"parents worth >= 1% found": "parents_found", "undecided": "undecided"}
    columns |= {"right at >= .95": "right_at_95", "certified": "certified"}
    cells = [[f"{row['episodes']:,}", *(f"{row[name]:.0%}" for name in columns.values())] for row in rows]
    for row, shown_row in zip(rows, cells, strict=True):
        if not any(each["verdicts"] for each in row["bins"] if each["from"] >= SURE):
            shown_row[3] = "-"
    return markdown(("episodes", *columns), cells)


# --- Kinds that the search was not made for

COLUMNS = {
    "sure": f">= {SURE}",
    "right": "right",
    "surest": f">= {SUREST}",
    "right_of_surest": "right",
    "denied": "denied",
    "bystanders": "bystanders",
    "proxies": "proxies",
    "undecided": "undecided",
    "certified": "certified",
}


def run_kinds(problems: int) -> dict[str, dict[str, float]]:
    """Of each kind, so many problems: what is sure, and how much of it is wrong."""
    rows = {}
    for kind in kinds.KINDS:
        rows[kind] = summary([judged(seed, kind, kinds.draw(seed, kind)) for seed in range(problems)])
        tell(f"{kind}: {rows[kind]['right']:.1%} right of what is sure")
    return rows


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Counts and shares; proxies of a hidden cause that are called present are counted apart."""
    confidence, right, edges, undecided, matter, parents, proxies, sure = (
        _joined(outcomes, name)
        for name in ("confidence", "right", "edges", "undecided", "matter", "parents", "proxies", "sure")
    )
    surest = confidence >= SUREST
    return {
        "sure": int(sure.sum()),
        "right": _share(right[sure]),
        "surest": int(surest.sum()),
        "right_of_surest": _share(right[surest]),
        "denied": int((matter & ~edges)[sure].sum()),
        "bystanders": int((edges & ~parents & ~proxies)[sure].sum()),
        "proxies": int((edges & proxies)[sure].sum()),
        "undecided": _share(undecided),
        "certified": _share(np.array([each.certified for each in outcomes])),
    }


def _share(holds: NDArray[np.bool_]) -> float:
    return round(float(holds.mean()), 4) if len(holds) else 1.0


def kinds_table(rows: dict[str, dict[str, float]]) -> str:
    cells = [
        (kind, *(f"{row[name]:.1%}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS))
        for kind, row in rows.items()
    ]
    return markdown(("kind", *COLUMNS.values()), cells)


if __name__ == "__main__":
    command.start(main, Structure)
