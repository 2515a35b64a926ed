"""Traces of an agent whose turns have known effects on the log odds that its task is solved.

A turn has a tool, tokens, an error flag, a latency and a vector of 64 numbers. Two tools, errors and three
directions of the vector have effects; tokens and latency have none, but errors are slow.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from apportion.data.columns import Columns
from apportion.data.reading import read_log
from apportion.runs.credit import INTERVAL, fit_credit
from apportion.runs.logged import records_of, spec_of

TOOLS = {"search": 0.3, "read": 0.0, "edit": 0.7, "ask": -0.5}
ERROR, ALONG, WIDTH = -2.0, (0.8, -0.6, 0.5), 64
DAMPED = 1.0  # prior precision of the weights of those features that the ceiling knows


class Traces(NamedTuple):
    episodes: list[dict[str, Any]]  # as their lines are
    effects: list[Any]  # [T] of turns, in log odds
    base: float
    solved: Any  # [E] as it is logged
    known: list[Any]  # [T, F] the features that have an effect, and nothing else


def draw(seed: int, count: int = 1500, rate: float = 0.35, flipped: float = 0.0) -> Traces:
    rng, names = np.random.default_rng(seed), list(TOOLS)
    directions = np.linalg.qr(rng.normal(size=(WIDTH, len(ALONG))))[0]
    episodes, effects, known = [], [], []
    for number in range(count):
        length = rng.integers(4, 21)
        tool, error = rng.integers(0, len(names), length), rng.random(length) < 0.1
        vectors = rng.normal(size=(length, WIDTH)).astype(np.float32)
        own = [np.eye(len(names))[tool], error[:, None], vectors @ directions]
        known.append(np.column_stack(own))
        effects.append(known[-1] @ np.array([*TOOLS.values(), ERROR, *ALONG]))
        numbers = zip(rng.lognormal(5, 1, length), rng.gamma(2, 1, length) + 2 * error, strict=True)
        turns = [
            {
                "tool": names[tool[t]],
                "tokens": int(tokens),
                "error": bool(error[t]),
                "seconds": float(seconds),
            }
            for t, (tokens, seconds) in enumerate(numbers)
        ]
        turns = [turn | {"vector": each.tolist()} for turn, each in zip(turns, vectors, strict=True)]
        episodes.append({"task": number, "turns": turns})
    sums, bases = np.array([each.sum() for each in effects]), np.linspace(-15, 15, 3001)
    base = float(bases[np.searchsorted([expit(b + sums).mean() for b in bases], rate)])
    solved = (rng.random(count) < expit(base + sums)) ^ (rng.random(count) < flipped)
    return Traces(episodes, effects, base, solved, known)


def tried(traces: Traces) -> dict[str, Any]:
    """Of all traces: credit beside effects, and where the turn that did most harm to a trace comes."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        outcomes = zip(traces.episodes, traces.solved.tolist(), strict=True)
        path.write_text("".join(json.dumps(each | {"solved": said}) + "\n" for each, said in outcomes))
        log = read_log(str(path), Columns(outcome="solved", without="task")).log
    spec, order = spec_of("traces", log), np.random.default_rng(0).permutation(len(log.totals))
    records = records_of(spec, log)
    learned, held_out = np.split(order[::-1], [len(order) - len(order) // 5])
    credit = fit_credit(spec, [records[n] for n in learned], [records[n] for n in held_out], 0, yes_no=True)
    steps = list(credit.of_records(records, None, paid=True))
    true = np.concatenate(traces.effects)
    low, high = (np.concatenate(each) for each in zip(*(own.within(INTERVAL) for own in steps), strict=True))
    best = ceiling(traces.known, traces.solved, learned)
    return {
        "solved": float(traces.solved.mean()),
        "supported": credit.facts["supported"],
        "flips": credit.posterior.flips,
        **{name: credit.facts[name] for name in ("log_loss", "constant_log_loss")},
        **judged(traces, [own.reward for own in steps]),
        "covered": float(np.mean((low <= true) & (true <= high))),
        "width": float(np.mean(high - low) / true.std()),
        **{f"{name}_at_best": value for name, value in judged(traces, best).items()},
        "cpu_seconds": time.process_time() - began,
    }


def judged(traces: Traces, credit: list[Any]) -> dict[str, float]:
    """How credit [T] of each trace goes with the effects, and how often, in traces that failed, the turn of
    the lowest effect is among the two of the lowest credit."""
    pairs = zip(traces.effects, credit, traces.solved, strict=True)
    named = [effects.argmin() in own.argsort()[:2] for effects, own, solved in pairs if not solved]
    correlation = np.corrcoef(np.concatenate(traces.effects), np.concatenate(credit))[0, 1]
    return {"correlation": float(correlation), "named": float(np.mean(named))}


def ceiling(known: list[Any], solved: Any, learned: Any) -> list[Any]:
    """Credit by a logistic regression that knows which features [T, F] have an effect, of those learned."""
    sums = np.array([known[number].sum(axis=0) for number in learned])
    weights, _ = regressed(sums, solved[learned], DAMPED)
    return [each @ weights[1:] for each in known]


def regressed(x: Any, said: Any, damped: float = 0.0) -> tuple[Any, Any]:
    """The weights of a logistic regression on x [E, F], a constant's first, and their covariance (Wald's)."""
    x = np.column_stack([np.ones(len(x)), x])
    weights, damping = np.zeros(x.shape[1]), damped * np.diag(np.arange(x.shape[1]) > 0)
    for _ in range(50):
        p = expit(x @ weights)
        curvature = x.T @ (x * (p * (1 - p))[:, None]) + damping
        weights += np.linalg.solve(curvature, x.T @ (said - p) - damping @ weights)
    return weights, np.linalg.inv(curvature)
