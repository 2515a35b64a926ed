"""Whether credit stands: the posterior is fitted again where nothing can be earned, where a column that earns
nothing was added, and where half of the episodes are left out.

With r the run's own credit of steps and r' that of another fit, in all cases on the same steps: `found` is
var(r') / var(r), how much credit there is at all, and `kept` is 1 - var(r' - r) / var(r), how much of the
run's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import input_names, input_owners
from apportion.core.config import Tell, check, silent
from apportion.data.rows import Log
from apportion.runs.credit import MOST_BEHIND, STEPS, fit_credit, need_credit, rows_of
from apportion.runs.fitting import FEWEST, set_aside
from apportion.runs.folder import RunFolder
from apportion.runs.learned import read_learned
from apportion.runs.logged import read_for, records_of, spec_of
from apportion.runs.summary import fit_warnings

RANDOM = "(random)"  # the column that is added
APART = 0.2  # share of the episodes by which each fit is judged

Rng = np.random.Generator


Other = tuple[Log, NDArray[np.int64]]  # episodes that differ from the run's; which are learned from


def _shuffled(log: Log, rng: Rng) -> Other:
    """Outcomes stand at other episodes."""
    return log._replace(totals=rng.permutation(log.totals)), np.arange(len(log.totals))


def _with_random(log: Log, rng: Rng) -> Other:
    """One more column, of normal numbers."""
    states = len(log.observation_names)
    names = (*log.observation_names, RANDOM)
    inputs = log.inputs or (*log.observation_names, *log.action_names)
    levels = log.levels or (0,) * len(inputs)
    more = log._replace(
        observations=[np.column_stack([each, rng.normal(size=len(each))]) for each in log.observations],
        observation_names=names,
        levels=(*levels[:states], 0, *levels[states:]),
        inputs=(*inputs[:states], RANDOM, *inputs[states:]),
    )
    return more, np.arange(len(log.totals))


CASES: dict[str, Callable[[Log, Rng], Other]] = {
    "outcomes shuffled": _shuffled,
    "a random column": _with_random,
    "half of the episodes": lambda log, rng: (log, set_aside(log, 0.5, rng)),
}


def refute(
    run: RunFolder, data: str | None, draws: int, tell: Tell = silent, embed: str | None = None
) -> dict[str, Any]:
    """Plain data for JSON: of each case, what each draw came to, and a sentence on all."""
    credit, (rows, log) = need_credit(run), read_for(run, data, embed)
    check(bool(np.isfinite(log.totals).all()), f"{rows.source}: outcomes are missing: fill them in")
    few = f"{rows.source} holds {len(log.totals)} episodes: {2 * FEWEST} are needed"
    check(len(log.totals) >= 2 * FEWEST, few)
    order = np.random.default_rng(0).permutation(len(log.totals))
    lengths = np.array([len(each) for each in log.actions])
    some = order[: 1 + int(np.searchsorted(np.cumsum(lengths[order]), STEPS))]
    every = records_of(run.read_spec(), log)
    records = [every[number] for number in some]
    learned = None if credit.alone else read_learned(run).mean_rewards(records)
    own = np.concatenate([each.reward for each in credit.of_records(records, learned, paid=False)])
    varied = float(own.var())
    check(varied > 0, f"{run.path} gives every step the same: there is nothing to refute")
    cases, done = dict[str, dict[str, list[float]]](), 0
    for name, other in CASES.items():
        found = []
        for draw in range(draws):
            found.append(_again(other, log, draw, some, own))
            done += 1
            tell(done, draws * len(CASES))
        cases[name] = {key: [each[key] for each in found] for key in found[0]}
    notes = fit_warnings(run)
    if not credit.alone:
        notes.append("The run's credit is not the posterior's alone, and only that is fitted again")
    refuted = [name for name in cases if _refuted(cases[name], name)]
    return {
        "run": str(run.path),
        "data": rows.source,
        "draws": draws,
        "cases": cases,
        "refuted": refuted,
        "sentence": _in_words(cases, refuted),
        "notes": notes,
    }


def _again(
    other: Callable[[Log, Rng], Other],
    log: Log,
    draw: int,
    some: NDArray[np.int64],
    own: NDArray[np.float64],
) -> dict[str, float]:
    """One fit of other episodes, beside the run's `own` credit of the steps in some of all."""
    rng = np.random.default_rng(draw)
    changed, used = other(log, rng)
    spec = spec_of("", changed)
    records = records_of(spec, changed)
    fewer = changed._replace(totals=changed.totals[used])
    behind = used[set_aside(fewer, APART, rng)]
    learned = np.setdiff1d(used, behind)
    credit = fit_credit(
        spec, [records[n] for n in learned], [records[n] for n in behind], draw, log.answers is not None
    )
    rows = np.concatenate(rows_of([records[number] for number in some]))
    reward = credit.posterior.expected(rows)
    found = {
        "found": float(reward.var() / own.var()),
        "kept": float(1 - np.var(reward - own) / own.var()),
        "explained": 1 - float(credit.facts["unexplained"]),
    }
    if RANDOM not in changed.observation_names:
        return found
    mine = input_owners(spec) == input_names(spec).index(RANDOM)
    shares = np.abs(credit.posterior.shares(rows, rows[-MOST_BEHIND:]).mean[:, :-1]).mean(axis=0)
    found["random_share"] = float(shares[mine].sum() / max(float(shares.sum()), 1e-300))
    return {**found, "random_matters": float(credit.posterior.matters[:-1][mine].max())}


def _refuted(case: dict[str, list[float]], name: str) -> bool:
    """Whether most draws speak against the run: as much is found where there is nothing, its own is not found
    again, or a random column is more likely to earn something than not."""
    if CASES[name] is _shuffled:
        return bool(np.median(case["found"]) >= 0.5)
    likely = np.median(case.get("random_matters", [0.0])) > 0.5
    return bool(np.median(case["kept"]) < 0.5 or likely)


def _in_words(cases: dict[str, dict[str, list[float]]], refuted: list[str]) -> str:
    parts = []
    for name, case in cases.items():
        shuffled = CASES[name] is _shuffled
        middle = max(0.0, float(np.median(case["found" if shuffled else "kept"])))
        parts.append(f"{name}: {middle:.0%} {'as much credit' if shuffled else 'of it stays'}")
    told = "; ".join(parts)
    if not refuted:
        return f"The credit stands ({told})."
    return f"The credit is refuted by {' and by '.join(refuted)} ({told}): do not rely on it."
