"""Credit by kind of step: what all steps with the same value of a column earned together, beside what simple
rules say. Intervals hold what is not known of rewards, and that other episodes might have been logged: each
draw from the posterior goes with a Poisson bootstrap of the episodes."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import input_names, input_owners
from apportion.core.config import Tell, check, nearest, silent
from apportion.core.spec import Spec
from apportion.data.encoding import MOST_CATEGORIES, UNKNOWN
from apportion.data.rows import Column, Log, Rows
from apportion.runs.credit import INTERVAL, Credit, need_credit, quantiles, rows_of
from apportion.runs.folder import RunFolder
from apportion.runs.logged import learners_record, read_facts, read_for
from apportion.runs.relabelling import method_rewards
from apportion.runs.summary import fit_warnings

HALF_LIFE = 3.0  # steps in which the weight of time decay halves
_BEHIND = 256  # steps to compare with,
_APART = 20_000  # and steps whose own part is told from that of other columns

Floats = NDArray[np.float64]


class _Kinds(NamedTuple):
    """What kind each of N steps is."""

    names: list[str]  # [V]
    codes: NDArray[np.int64]  # [N]

    def sums(self, values: Floats) -> Floats:
        """[V] of values [N]."""
        return np.asarray(np.bincount(self.codes, values, len(self.names)), np.float64)


def credit_by(run: RunFolder, data: str | None, by: str, tell: Tell = silent) -> dict[str, Any]:
    """Plain data for JSON: a row for each value of the column, the largest credit first. In the unit of
    outcomes; of yes and no, in episodes that came to a yes."""
    credit = need_credit(run)
    source = str(read_facts(run)["data"]) if data is None else data
    rows, log = read_for(run, source)
    learned = None if credit.share == 1 else method_rewards(run, log)
    return {
        "run": str(run.path),
        "data": source,
        "by": by,
        "unit": "outcome" if log.answers is None else "yes",
        "episodes": len(rows.lengths),
        "outcomes": float(np.nansum(log.totals)),
        "kinds": credit_of_kinds(run.read_spec(), credit, rows, log, by, learned, tell),
        "notes": fit_warnings(run),
    }


def credit_of_kinds(
    spec: Spec,
    credit: Credit,
    rows: Rows,
    log: Log,
    by: str,
    learned: list[Floats] | None = None,
    tell: Tell = silent,
) -> list[dict[str, Any]]:
    """A row for each value of a column, beside a method that gave steps `learned` rewards, if one counts."""
    kinds = _kinds(rows, by)
    episodes = [rows_of(learners_record(spec, log, number, number)) for number in range(len(rows.lengths))]
    drawn, rates = _credit(credit, episodes, rows, log, kinds, learned, tell)
    shares = drawn / np.where(drawn.sum(axis=0) == 0, np.nan, drawn.sum(axis=0))
    (low, high), (share_low, share_high) = quantiles(drawn, INTERVAL), quantiles(shares, INTERVAL)
    mine = input_owners(spec) == input_names(spec).index(by)
    own = _own(credit, np.concatenate(episodes), kinds, mine, rates)
    columns = {
        "n": np.bincount(kinds.codes, minlength=len(kinds.names)),
        "credit": drawn[:, 0],
        "low": low,
        "high": high,
        "share": shares[:, 0],
        "share_low": share_low,
        "share_high": share_high,
        "own": own,
        "others": drawn[:, 0] - own,
        **_rules(kinds, rows, log),
    }
    table: list[dict[str, Any]] = [
        {"value": name, **{key: values[place].item() for key, values in columns.items()}}
        for place, name in enumerate(kinds.names)
    ]
    return sorted(table, key=lambda each: -each["credit"])


def _kinds(rows: Rows, by: str) -> _Kinds:
    columns: dict[str, Column] = {**rows.states, **rows.actions}
    check(by in columns, f"{rows.source}: the run reads no column {by!r}{nearest(by, list(columns))}")
    texts = [UNKNOWN if value is None or value != value else _text(value) for value in columns[by]]
    names = sorted(set(texts))
    check(
        len(names) <= MOST_CATEGORIES,
        f"--by {by}: it has {len(names):,} different values, and {MOST_CATEGORIES} are the most: group them",
    )
    place = {name: number for number, name in enumerate(names)}
    return _Kinds(names, np.array([place[text] for text in texts], np.int64))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _credit(
    credit: Credit,
    episodes: list[Floats],
    rows: Rows,
    log: Log,
    kinds: _Kinds,
    learned: list[Floats] | None,
    tell: Tell,
) -> tuple[Floats, Floats]:
    """[V, K+1] what all steps of a kind earned, and [N] what the outcome gains for each unit of reward."""
    rng, draws = np.random.default_rng(0), credit.posterior.weights.shape[0]
    found, weight = np.zeros((len(kinds.names), draws)), np.zeros(draws)
    rates = np.ones(len(kinds.codes))
    every = zip(rows.starts.tolist(), credit.of_episodes(episodes, learned, log.totals), strict=True)
    for number, (start, steps) in enumerate(every):
        earned = steps.drawn() if log.answers is None else credit.divided(steps)
        where = slice(start, start + len(earned))
        if log.answers is not None:
            rates[where] = earned[:, 0].sum() / (steps.reward.sum() or 1.0)
        times = np.append(1.0, rng.poisson(1.0, draws - 1))
        np.add.at(found, kinds.codes[where], earned * times)
        weight += times
        tell(number + 1, len(episodes))
    return found * len(episodes) / np.maximum(weight, 1.0), rates


def _own(credit: Credit, rows: Floats, kinds: _Kinds, mine: NDArray[np.bool_], rates: Floats) -> Floats:
    """[V] of the credit what the column itself has: its Shapley values, as `relabel --credit` writes them."""
    order = np.random.default_rng(0).permutation(len(rows))
    some = np.sort(order[:_APART])
    shares = credit.posterior.shares(rows[some], rows[order[-_BEHIND:]]).mean[:, :-1]
    fewer = _Kinds(kinds.names, kinds.codes[some])
    seen, count = (np.bincount(each.codes, minlength=len(kinds.names)) for each in (fewer, kinds))
    return np.asarray(fewer.sums(shares[:, mine].sum(axis=1) * rates[some]) * count / np.maximum(seen, 1))


# --- What simple rules say


def _rules(kinds: _Kinds, rows: Rows, log: Log) -> dict[str, Floats]:
    """[V] of each: all of an outcome for the first step or the last, evenly for all, or the more the later;
    and, of yes and no, by what a chain of kinds loses without one."""
    totals, lengths, starts = np.nan_to_num(log.totals), rows.lengths, rows.starts
    behind = np.repeat(starts + lengths - 1, lengths) - np.arange(len(kinds.codes))
    decayed = 0.5 ** (behind / HALF_LIFE)
    whole = np.repeat(np.add.reduceat(decayed, starts), lengths)
    each = np.repeat(totals, lengths)
    first, last = np.zeros_like(each), np.zeros_like(each)
    first[starts], last[starts + lengths - 1] = totals, totals
    found = {
        "first": first,
        "last": last,
        "linear": each / np.repeat(lengths, lengths),
        "time_decay": each * decayed / whole,
    }
    rules = {name: kinds.sums(values) for name, values in found.items()}
    return (
        rules if log.answers is None else {**rules, "removal": removal_effects(kinds.codes, starts, totals)}
    )


def removal_effects(codes: NDArray[np.int64], starts: NDArray[np.int64], said: Floats) -> Floats:
    """[V] of all yes, in proportion to how much rarer yes would be in a Markov chain of kinds if each step of
    one led to no."""
    kinds = int(codes.max()) + 1
    begin, no, yes = kinds, kinds + 1, kinds + 2
    counts = np.zeros((kinds + 1, kinds + 3))
    ends = np.append(starts[1:], len(codes)) - 1
    counts[begin, :kinds] = np.bincount(codes[starts], minlength=kinds)
    np.add.at(counts, (codes[ends], np.where(said > 0, yes, no)), 1)
    inner = np.setdiff1d(np.arange(len(codes)), ends)
    np.add.at(counts, (codes[inner], codes[inner + 1]), 1)
    chance = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def reached(chance: Floats) -> float:
        among = np.eye(kinds + 1) - chance[:, : kinds + 1]
        return float(np.linalg.solve(among, chance[:, yes])[begin])

    usual, effects = reached(chance), np.zeros(kinds)
    for kind in range(kinds):
        without = chance.copy()
        without[:, kind] = 0.0
        effects[kind] = 1 - reached(without) / usual if usual > 0 else 0.0
    return np.asarray(said.sum() * effects / (effects.sum() or 1.0))
