"""Outcomes that are yes or no: journeys and agents' traces, whose steps have known effects on the log odds.

    python benchmarks/journeys.py --out results/journeys.json
    python benchmarks/journeys.py --kinds additive traces --draws 3
    python benchmarks/journeys.py --show results/journeys.json

`retargeting` earns only after a `search`, but in the additive kind; `coupon` and `social` earn nothing, and
the coupon is the last touch of half of the journeys. True shares are of the true effects, divided as ours.
Traces are those of lib/traces.py.
"""

import csv
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from apportion.data.columns import Columns
from apportion.data.reading import read_log, read_rows
from apportion.runs.atomic import read_json, write_json
from apportion.runs.credit import INTERVAL, fit_credit, half_width
from apportion.runs.crediting import credit_of_kinds
from apportion.runs.folder import versions
from apportion.runs.logged import records_of, spec_of
from lib import traces
from lib.command import given, markdown, start

EFFECTS = {"search": 0.8, "email": 0.5, "coupon": 0.0, "social": 0.0, "retargeting": 0.9}
CHANNELS = list(EFFECTS)
FIRST = (0.3, 0.2, 0.2, 0.25, 0.05)
NEXT = ((1, 2, 2, 3, 2), (2, 1, 3, 2, 2), (2, 3, 1, 3, 1), (3, 2, 2, 1, 2), (2, 2, 3, 2, 1))  # in tenths
KINDS: dict[str, dict[str, Any]] = {
    "journeys": {},
    "flipped": {"flipped": 0.2},
    "150 journeys": {"count": 150},
    "additive": {"after": False},
    "traces": {},
    "traces, flipped": {"flipped": 0.2},
}
JOURNEYS = (
    "journeys",
    "draws",
    "order right",
    "by last touch",
    "shares covered",
    "error",
    "of last touch",
    "width",
    "told",
)
EFFECTS_OF = ("effects", "by", "error", "covered", "width")
TRACES = ("traces", "draws", "correlation (at best)", "among two (at best)", "covered", "width")


@dataclass(frozen=True)
class Journeys:
    """Which problems."""

    kinds: tuple[str, ...] = tuple(KINDS)
    """Some of them."""
    draws: int = 10
    """Problems of each kind."""
    first: int = 0
    """Number of the first of them."""
    out: Path | None = None
    """Where to write the results, as JSON."""
    show: Path | None = None
    """Print results that were written before, and measure nothing."""


class Problem(NamedTuple):
    touched: list[Any]  # of each journey, numbers of channels
    effects: list[Any]  # [T] log odds
    base: float
    bought: Any  # [E]


def main(flags: Journeys) -> None:
    if flags.show is not None:
        return print(shown(read_json(flags.show)))
    found = []
    for kind in flags.kinds:
        for number in range(flags.first, flags.first + flags.draws):
            settings = KINDS[kind]
            of_kind = (
                traces.tried(traces.draw(number, **settings))
                if kind.startswith("traces")
                else tried(draw(number, **settings), kind)
            )
            found.append({"kind": kind, "draw": number, **of_kind})
            print(found[-1], flush=True)
    data = {"command": given(), "commit": versions()["commit"], "problems": found}
    print(shown(data))
    if flags.out is not None:
        write_json(flags.out, data)


def draw(
    seed: int, count: int = 3000, rate: float = 0.08, flipped: float = 0.0, after: bool = True
) -> Problem:
    rng, chance = np.random.default_rng(seed), np.array(NEXT) / 10
    touched = []
    for _ in range(count):
        channels = [rng.choice(5, p=FIRST)]
        for _ in range(rng.integers(2, 12)):
            channels.append(rng.choice(5, p=chance[channels[-1]]))
        if rng.random() < 0.5:
            channels[-1] = CHANNELS.index("coupon")
        touched.append(np.array(channels))
    effects = [np.array(list(EFFECTS.values()))[each] for each in touched]
    if after:
        searched = [np.cumsum(each == 0) > 0 for each in touched]
        effects = [e * ((c != 4) | s) for e, c, s in zip(effects, touched, searched, strict=True)]
    sums = np.array([each.sum() for each in effects])
    bases = np.linspace(-15, 5, 2001)
    base = float(bases[np.searchsorted([expit(b + sums).mean() for b in bases], rate)])
    bought = rng.random(count) < expit(base + sums)
    return Problem(touched, effects, base, bought ^ (rng.random(count) < flipped))


def tried(problem: Problem, kind: str) -> dict[str, Any]:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journeys.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["journey", "channel", "bought"])
            for number, channels in enumerate(problem.touched):
                said = "yes" if problem.bought[number] else "no"
                writer.writerows([number, CHANNELS[each], said] for each in channels)
        seen = None if kind == "additive" else "channel"
        columns = Columns(episode="journey", states="channel", actions="", outcome="bought", seen=seen)
        log, rows = read_log(str(path), columns).log, read_rows(str(path), columns)
    spec, order = spec_of("journeys", log), np.random.default_rng(0).permutation(len(log.totals))
    records = list(map(records_of(spec, log).__getitem__, order))
    credit = fit_credit(spec, records[len(order) // 5 :], records[: len(order) // 5], 0, yes_no=True)
    ours = {each["value"]: each for each in credit_of_kinds(spec, credit, rows, log, "channel")}
    true = true_shares(problem)
    nonzero = [name for name in CHANNELS if true[name] > 0.01]
    found = {
        "yes": int(problem.bought.sum()),
        "supported": credit.facts["supported"],
        "log_loss": credit.facts["log_loss"],
        "constant_log_loss": credit.facts["constant_log_loss"],
        "order": ordered(true, {name: each["credit"] for name, each in ours.items()}, nonzero),
        "order_by_last": ordered(true, {name: each["last"] for name, each in ours.items()}, nonzero),
        "covered": [
            int(ours[name]["share_low"] <= true[name] <= ours[name]["share_high"]) for name in CHANNELS
        ],
        "error": float(np.mean([abs(ours[name]["share"] - true[name]) for name in CHANNELS])),
        "error_of_last": float(
            np.mean([abs(ours[n]["last"] / problem.bought.sum() - true[n]) for n in CHANNELS])
        ),
        "width": float(np.mean([each["share_high"] - each["share_low"] for each in ours.values()])),
    }
    found |= beside_logistic(problem, credit) if kind == "additive" else {}
    return {**found, "cpu_seconds": time.process_time() - began}


def true_shares(problem: Problem) -> dict[str, float]:
    sums = np.array([each.sum() for each in problem.effects])
    gained = expit(problem.base + sums) - expit(problem.base)
    rates = gained / np.where(sums > 0, sums, 1.0)
    earned = np.concatenate([each * rate for each, rate in zip(problem.effects, rates, strict=True)])
    whole = np.bincount(np.concatenate(problem.touched), earned, 5)
    return dict(zip(CHANNELS, (whole / whole.sum()).tolist(), strict=True))


def ordered(true: dict[str, float], found: dict[str, float], nonzero: list[str]) -> bool:
    """Whether channels that earn come in their order, and those that do not behind them."""
    order = sorted(nonzero, key=lambda name: -true[name])
    rest = max(found[name] for name in CHANNELS if name not in nonzero)
    values = [found[name] for name in order]
    return bool(values == sorted(values, reverse=True) and values[-1] > rest)


def beside_logistic(problem: Problem, credit: Any) -> dict[str, Any]:
    """Effects of a touch, with intervals, beside logistic regression on counts of channels."""
    steps = np.column_stack([np.eye(5)[np.argsort(np.argsort(CHANNELS))], np.zeros(5)])  # as categories are
    drawn = credit.posterior.rewards(steps)
    spread = np.sqrt(np.mean((drawn[:, 1:] - drawn[:, :1]) ** 2, axis=1))
    counts = np.array([np.bincount(each, minlength=5) for each in problem.touched], np.float64)
    x, weights = np.column_stack([np.ones(len(counts)), counts]), np.zeros(6)
    for _ in range(30):
        p = expit(x @ weights)
        covariance = np.linalg.inv(x.T @ (x * (p * (1 - p))[:, None]))
        weights = weights + covariance @ (x.T @ (problem.bought - p))
    true, half = np.array(list(EFFECTS.values())), half_width(INTERVAL)
    errors = {"ours": (drawn[:, 0], spread), "logistic": (weights[1:], np.sqrt(np.diag(covariance))[1:])}
    return {
        name: {
            "error": float(np.sqrt(np.mean((middle - true) ** 2))),
            "covered": float(np.mean(np.abs(middle - true) <= half * deviation)),
            "width": float(2 * half * np.mean(deviation)),
        }
        for name, (middle, deviation) in errors.items()
    }


def shown(data: dict[str, Any]) -> str:
    """Means over draws: of journeys, of effects beside logistic regression, and of traces."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in data["problems"]:
        kinds.setdefault(each["kind"], []).append(each)
    tables = []
    for texts, headers, rows in (
        (1, JOURNEYS, _of_journeys),
        (2, EFFECTS_OF, _of_effects),
        (1, TRACES, _of_traces),
    ):
        found = [row for kind, mine in kinds.items() for row in rows(kind, mine)]
        tables += [markdown(headers, found, texts)] if found else []
    return "\n\n".join(tables)


Cells = Iterator[tuple[str, ...]]


def _of_journeys(kind: str, mine: list[dict[str, Any]]) -> Cells:
    if "order" in mine[0]:
        of = partial(_mean, mine)
        covered = f"{of('covered'):.0%}"
        errors = (f"{of(name):.3f}" for name in ("error", "error_of_last", "width"))
        orders = (f"{of(name):.0%}" for name in ("order", "order_by_last"))
        yield kind, str(len(mine)), *orders, covered, *errors, f"{of('supported'):.0%}"


def _of_effects(kind: str, mine: list[dict[str, Any]]) -> Cells:
    for who in ("ours", "logistic") if "ours" in mine[0] else ():
        of = partial(_mean, [each[who] for each in mine])
        yield kind, who, f"{of('error'):.3f}", f"{of('covered'):.0%}", f"{of('width'):.2f}"


def _of_traces(kind: str, mine: list[dict[str, Any]]) -> Cells:
    if "named" in mine[0]:
        of = partial(_mean, mine)
        pairs = (
            f"{of(name):{form}} ({of(f'{name}_at_best'):{form}})"
            for name, form in (("correlation", ".3f"), ("named", ".0%"))
        )
        yield kind, str(len(mine)), *pairs, f"{of('covered'):.0%}", f"{of('width'):.2f}"


def _mean(mine: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([each[name] for each in mine]))


if __name__ == "__main__":
    start(main, Journeys)
