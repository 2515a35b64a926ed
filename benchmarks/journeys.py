"""Outcomes that are yes or no: journeys and agents' traces, whose steps have known effects on the log odds.

    python benchmarks/journeys.py --out results/journeys.json
    python benchmarks/journeys.py --kinds flipped traces --draws 3
    python benchmarks/journeys.py --show results/journeys.json

`retargeting` earns only after a `search`, or in `additive` journeys always; `coupon` and `social` nothing;
the coupon is half of the last touches. True shares are of the true effects, divided as ours; at best, those
of a logistic regression that knows which touches earn; by counts, of one on touches of each channel.
"""

import csv
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from apportion.data.columns import Columns
from apportion.data.reading import read_log, read_rows
from apportion.runs.atomic import read_json, write_json
from apportion.runs.credit import INTERVAL, fit_credit
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
    "additive": {"additive": True},
    "150 additive": {"additive": True, "count": 150},
    "traces": {},
    "traces, flipped": {"flipped": 0.2},
}
SHARES = ("share", "share_low", "share_high")
FORMS = {"covered": ".0%", "error": ".3f", "width": ".3f"}  # of what is compared with a regression on counts
DRAWS = 2000  # of weights, by which intervals of shares are found
JOURNEYS = (
    "journeys",
    "order right (at best)",
    *(f"{name} (by counts)" for name in FORMS),
    "of last",
    "told",
)
TRACES = ("traces", "correlation (at best)", "among two (at best)", "covered", "width")


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
            problem = (traces.draw if kind.startswith("traces") else draw)(number, **KINDS[kind])
            of_kind = tried(problem) if isinstance(problem, Problem) else traces.tried(problem)
            found.append({"kind": kind, "draw": number, **of_kind})
            print(found[-1], flush=True)
    data = {"command": given(), "commit": versions()["commit"], "problems": found}
    print(shown(data))
    if flags.out is not None:
        write_json(flags.out, data)


def draw(
    seed: int, count: int = 3000, rate: float = 0.08, flipped: float = 0.0, additive: bool = False
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
    searched = [np.cumsum(each == 0) > 0 for each in touched]
    effects = [e * ((c != 4) | s | additive) for e, c, s in zip(effects, touched, searched, strict=True)]
    sums = np.array([each.sum() for each in effects])
    bases = np.linspace(-15, 5, 2001)
    base = float(bases[np.searchsorted([expit(b + sums).mean() for b in bases], rate)])
    bought = rng.random(count) < expit(base + sums)
    return Problem(touched, effects, base, bought ^ (rng.random(count) < flipped))


def tried(problem: Problem) -> dict[str, Any]:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journeys.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["journey", "channel", "bought"])
            for number, channels in enumerate(problem.touched):
                said = "yes" if problem.bought[number] else "no"
                writer.writerows([number, CHANNELS[each], said] for each in channels)
        columns = Columns(episode="journey", states="channel", actions="", outcome="bought", seen="channel")
        log, rows = read_log(str(path), columns).log, read_rows(str(path), columns)
    spec, order = spec_of("journeys", log), np.random.default_rng(0).permutation(len(log.totals))
    records = list(map(records_of(spec, log).__getitem__, order))
    credit = fit_credit(spec, records[len(order) // 5 :], records[: len(order) // 5], 0, yes_no=True)
    ours = {each["value"]: each for each in credit_of_kinds(spec, credit, rows, log, "channel")}
    true = true_shares(problem)
    nonzero = [name for name in CHANNELS if true[name] > 0.01]
    return {
        "yes": int(problem.bought.sum()),
        "supported": credit.facts["supported"],
        "log_loss": credit.facts["log_loss"],
        "constant_log_loss": credit.facts["constant_log_loss"],
        "order": ordered(true, {name: each["credit"] for name, each in ours.items()}, nonzero),
        "order_at_best": ordered(true, at_best(problem, order[len(order) // 5 :]), nonzero),
        "order_by_last": ordered(true, {name: each["last"] for name, each in ours.items()}, nonzero),
        **judged(true, *([ours[name][key] for name in CHANNELS] for key in SHARES)),
        **{f"{name}_by_counts": value for name, value in judged(true, *by_counts(problem)).items()},
        "error_of_last": float(
            np.mean([abs(ours[n]["last"] / problem.bought.sum() - true[n]) for n in CHANNELS])
        ),
        "cpu_seconds": time.process_time() - began,
    }


def true_shares(problem: Problem) -> dict[str, float]:
    sums = np.array([each.sum() for each in problem.effects])
    gained = expit(problem.base + sums) - expit(problem.base)
    rates = gained / np.where(sums == 0, 1.0, sums)
    earned = np.concatenate([each * rate for each, rate in zip(problem.effects, rates, strict=True)])
    whole = np.bincount(np.concatenate(problem.touched), earned, 5)
    return dict(zip(CHANNELS, (whole / whole.sum()).tolist(), strict=True))


def judged(true: dict[str, float], share: Any, low: Any, high: Any) -> dict[str, Any]:
    """How shares of all channels [5], and ends of their intervals, go with the true ones, where told."""
    share, low, high, known = (np.array(each, float) for each in (share, low, high, list(true.values())))
    covered = np.where(np.isnan(share), np.nan, (low <= known) & (known <= high))
    numbers = {"error": np.abs(share - known), "width": high - low}
    return {"covered": covered.tolist(), **{name: float(each.mean()) for name, each in numbers.items()}}


def by_counts(problem: Problem) -> Any:
    """[3, 5] shares and ends of their intervals by a logistic regression on how often a journey touched each
    channel: its weights vary as Wald's covariance says."""
    counts = np.array([np.bincount(channels, minlength=5) for channels in problem.touched])
    weights, covariance = traces.regressed(counts, problem.bought)
    drawn = np.random.default_rng(0).multivariate_normal(weights, covariance, DRAWS)
    base, effects = np.split(np.vstack([weights, drawn]), [1], axis=1)
    sums = effects @ counts.T
    whole = effects * (((expit(base + sums) - expit(base)) / sums) @ counts)
    found = whole / whole.sum(axis=1, keepdims=True)
    return np.array([found[0], *np.quantile(found[1:], [0.5 - INTERVAL / 2, 0.5 + INTERVAL / 2], axis=0)])


def ordered(true: dict[str, float], found: dict[str, float], nonzero: list[str]) -> bool:
    """Whether channels that earn come in their order, and those that do not behind them."""
    order = sorted(nonzero, key=lambda name: -true[name])
    rest = max(found[name] for name in CHANNELS if name not in nonzero)
    values = [found[name] for name in order]
    return bool(values == sorted(values, reverse=True) and values[-1] > rest)


def at_best(problem: Problem, learned: Any) -> dict[str, float]:
    """Shares by a logistic regression that knows which touches earn, on the same journeys."""
    touches = zip(problem.touched, problem.effects, strict=True)
    known = [np.eye(len(CHANNELS))[channels] * (earned > 0)[:, None] for channels, earned in touches]
    return true_shares(problem._replace(effects=traces.ceiling(known, problem.bought, learned)))


def shown(data: dict[str, Any]) -> str:
    """Means over draws: of journeys, and of traces."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in data["problems"]:
        kinds.setdefault(each["kind"], []).append(each)
    tables = []
    for headers, rows in ((JOURNEYS, _of_journeys), (TRACES, _of_traces)):
        found = [(kind, *cells) for kind, mine in kinds.items() if (cells := [*rows(mine)])]
        tables += [markdown(headers, found)] if found else []
    return "\n\n".join(tables)


Cells = Iterator[str]


def _of_journeys(mine: list[dict[str, Any]]) -> Cells:
    if "order" in mine[0]:
        yield from _beside(mine, "at_best", {"order": ".0%"})
        yield from _beside(mine, "by_counts", FORMS)
        yield from (f"{_mean(mine, 'error_of_last'):.3f}", f"{_mean(mine, 'supported'):.0%}")


def _of_traces(mine: list[dict[str, Any]]) -> Cells:
    if "named" in mine[0]:
        yield from _beside(mine, "at_best", {"correlation": ".3f", "named": ".0%"})
        yield from (f"{_mean(mine, 'covered'):.0%}", f"{_mean(mine, 'width'):.2f}")


def _beside(mine: list[dict[str, Any]], other: str, forms: dict[str, str]) -> Cells:
    for name, form in forms.items():
        yield f"{_mean(mine, name):{form}} ({_mean(mine, f'{name}_{other}'):{form}})"


def _mean(mine: list[dict[str, Any]], name: str) -> float:
    return float(np.nanmean(np.array([each[name] for each in mine], np.float64)))


if __name__ == "__main__":
    start(main, Journeys)
