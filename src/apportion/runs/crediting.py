"""What steps of a log earned, by a run that was fitted to outcomes: row for row, or by kind of step.

Every answer is a function of the draws of their rewards (`credit.Steps`); where a run has no posterior, of
what its method has learned.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import input_names, input_owners
from apportion.core.config import Tell, check, nearest, silent
from apportion.core.spec import Spec
from apportion.data.encoding import MOST_CATEGORIES, UNKNOWN
from apportion.data.rows import CREDIT, REWARD, Column, Earned, Log, Rows, cut
from apportion.runs.atomic import plain
from apportion.runs.contributions import Precision, steps_of
from apportion.runs.credit import (
    INTERVAL,
    MOST_BEHIND,
    STEPS,
    Credit,
    blocks,
    half_width,
    need_credit,
    quantiles,
    read_credit,
    rows_of,
)
from apportion.runs.explaining import Explainer
from apportion.runs.folder import RunFolder
from apportion.runs.learned import read_learned
from apportion.runs.logged import plain_episode, read_facts, read_for, reader_for, records_of
from apportion.runs.summary import fit_warnings

HALF_LIFE = 3.0  # steps in which the weight of time decay halves
_EXPLAINED = 2000  # steps at once, or those of one longer episode
_CHANGE = "probability_change"  # the column that is written for outcomes of yes and no

Floats = NDArray[np.float64]
Columns = dict[str, Floats]

# --- Row for row


def relabel_rows(
    run: RunFolder,
    data: str,
    exact: bool,
    credit: bool,
    precision: Precision,
    tell: Tell,
    embed: str | None = None,
    decided: bool = False,
) -> Earned:
    """Credit of other data, or of those that the run was fitted to. What noise added to an outcome that is
    known is spread evenly over the steps; with `exact`, so is a level that all outcomes have in common."""
    check(credit or not decided, "--decided is about the credit of dimensions: add --credit")
    rows, as_log = reader_for(run, data, tell, embed)
    paths = rows.choice is not None and rows.choice.path is not None
    no_steps = f"{data} has a row for each path, and none for a step to write: see `apportion credit --by`"
    check(not paths, no_steps)
    unpaid = np.isnan(rows.totals)
    who = f"{data}: episode {np.argmax(unpaid) + 1} of {len(unpaid)} has no outcome"
    check(not (exact and unpaid.any()), f"{who}: fill it in, or relabel without --exact")
    answered, known = read_facts(run)["answers"] is not None, read_credit(run)
    both = "shares are log odds, and --exact makes amounts: leave out one"
    check(not (answered and exact and credit), both)
    without = f"{run.path} has no intervals, without which yes and no are not made"
    check(not (exact and answered and known is None), without)
    learned, spec, rewards = read_learned(run), run.read_spec(), None
    if known is None or not known.alone:
        rewards = np.concatenate(learned.mean_rewards(records_of(spec, as_log(rows)), tell))
        needed = np.isnan(rewards[np.repeat(unpaid, rows.lengths)]).any()
        check(not needed, f"{who}, by which {learned.config.method} divides it: fill it in, or leave it out")
    explainer = Explainer(run, precision) if credit else None
    left_out = explainer.undecided(learned.sound) if explainer and decided else []
    shares, columns = list[Columns](), list[Columns]()
    for episodes in blocks(rows.lengths, STEPS if explainer is None else _EXPLAINED):
        some = rows.some(episodes)
        first = int(rows.starts[episodes.start])
        given = None if rewards is None else rewards[first : first + int(some.lengths.sum())]
        log = as_log(some)
        found = _columns(spec, known, log, given, exact)
        if exact:  # with what is missing of each outcome spread evenly
            missing = (some.totals - np.add.reduceat(found[REWARD], some.starts)) / some.lengths
            found = {name: values + np.repeat(missing, some.lengths) for name, values in found.items()}
        if explainer is not None:
            parts, ends = _shares(explainer, learned.sound, log, left_out)
            shares.append(parts)
            found |= ends
        columns.append(found)
        tell(episodes.stop, len(rows.lengths))
    bounds, whole = _joined(columns), _joined(shares)
    reward = bounds.pop(REWARD)
    if credit:
        free = "baseline"  # a dimension may be called like that
        while free in whole:
            free += "_"
        whole[free] = reward - sum(whole.values())
    return Earned(rows, reward, whole, bounds)


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}


def _columns(spec: Spec, credit: Credit | None, log: Log, rewards: Floats | None, exact: bool) -> Columns:
    """[N] the credit of each step, beside a method that gave them these rewards, if that counts, and the ends
    of its interval. Of yes and no these are log odds, and how much each step changed the probability; or,
    exactly, parts of the outcome in the data's own numbers."""
    if credit is None:
        return {REWARD: np.zeros(0) if rewards is None else rewards}
    lengths, answers = np.array([len(each) for each in log.actions], np.int64), log.answers
    given = None if rewards is None else cut(rewards, lengths)
    [(_, steps)] = credit.of_blocks(rows_of(records_of(spec, log)), given, log.totals)
    if answers is not None and exact:
        return _with_ends(REWARD, credit.divided(steps, lengths) * (answers[1] - answers[0]))
    low, high = steps.within(INTERVAL)
    found = {REWARD: steps.reward, f"{REWARD}_low": low, f"{REWARD}_high": high}
    return found if answers is None else found | _with_ends(_CHANGE, credit.changes(steps, lengths))


def _with_ends(name: str, drawn: Floats) -> Columns:
    """[N] what is expected, and between which bounds, of draws [N, K+1]."""
    low, high = quantiles(drawn, INTERVAL)
    return {name: drawn[:, 0].copy(), f"{name}_low": low, f"{name}_high": high}  # a view keeps all draws


def _shares(explainer: Explainer, lanes: list[int], log: Log, left_out: list[str]) -> tuple[Columns, Columns]:
    """[N] of each dimension but these, the mean over lanes, and the ends of their intervals."""
    steps = steps_of(plain_episode(explainer.spec, log, number) for number in range(len(log.totals)))
    explained = [explainer.explain(lane, steps, errors=False) for lane in lanes]
    values = np.mean([each.contributions for each in explained], axis=0)
    shares, bounds = dict(zip(explainer.names, values.T, strict=True)), Columns()
    for name in left_out:
        del shares[name]
    if explainer.credit is not None:
        doubt = np.mean([np.asarray(each.deviations) for each in explained], axis=0)
        halves = dict(zip(explainer.names, half_width(INTERVAL) * doubt.T, strict=True))
        for name, middle in shares.items():
            bounds[f"{CREDIT}_{name}_low"] = middle - halves[name]
            bounds[f"{CREDIT}_{name}_high"] = middle + halves[name]
    return shares, bounds


# --- By kind of step


def _in_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return UNKNOWN if value is None or value != value else f"{value:g}"


class _Kinds(NamedTuple):
    """What kind each of N steps is."""

    names: list[str]  # [V]
    codes: NDArray[np.int64]  # [N]

    @classmethod
    def of(cls, rows: Rows, by: str) -> "_Kinds":
        """By the values of a column."""
        columns: dict[str, Column] = {**rows.states, **rows.actions}
        check(by in columns, f"{rows.source}: the run reads no column {by!r}{nearest(by, list(columns))}")
        values = columns[by].tolist()
        texts = {value: _in_words(value) for value in values}
        names = sorted(set(texts.values()))
        many = f"--by {by}: it has {len(names):,} different values, and {MOST_CATEGORIES} are the most"
        check(len(names) <= MOST_CATEGORIES, f"{many}: group them")
        return cls(names, np.array([names.index(texts[value]) for value in values], np.int64))

    def sums(self, values: Floats | None = None) -> Floats:
        """[V] of values [N], or how many steps there are."""
        found: NDArray[Any] = np.bincount(self.codes, values, len(self.names))
        return found


def credit_by(
    run: RunFolder, data: str | None, by: str, tell: Tell = silent, embed: str | None = None
) -> dict[str, Any]:
    """Plain data for JSON: a row for each value of the column, the largest credit first. In the unit of
    outcomes; of yes and no, in episodes that came to a yes."""
    credit = need_credit(run)
    rows, log = read_for(run, data, embed)
    spec, learned = run.read_spec(), None
    if not credit.alone:
        learned = read_learned(run).mean_rewards(records_of(spec, log))
    return {
        "run": str(run.path),
        "data": rows.source,
        "by": by,
        "unit": "outcome" if log.answers is None else "yes",
        "episodes": len(rows.lengths),
        "outcomes": float(np.nansum(log.totals)),
        "kinds": credit_of_kinds(spec, credit, rows, log, by, learned, tell),
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
    """A row for each value of a column: what all steps of the kind earned together, beside a method that gave
    them `learned` rewards, if one counts, and what simple rules say. Intervals hold what is not known of
    rewards, and that other episodes might have been logged."""
    kinds = _Kinds.of(rows, by)
    episodes = rows_of(records_of(spec, log))
    drawn, rates = _earned(credit, episodes, rows, log, kinds, learned, tell)
    whole = drawn.sum(axis=0)
    [least], [most] = quantiles(whole[None], INTERVAL)
    shares = drawn / (whole if least * most > 0 else np.nan)  # of a sum that may be 0 nothing is a share
    (low, high), (share_low, share_high) = quantiles(drawn, INTERVAL), quantiles(shares, INTERVAL)
    mine = input_owners(spec) == input_names(spec).index(by)
    own = _own(credit, np.concatenate(episodes), kinds, mine, rates)
    columns = {
        "n": kinds.sums(),
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
        plain({"value": name, **{key: values[place] for key, values in columns.items()}})
        for place, name in enumerate(kinds.names)
    ]
    return sorted(table, key=lambda each: -each["credit"])


def _earned(
    credit: Credit,
    episodes: list[Floats],
    rows: Rows,
    log: Log,
    kinds: _Kinds,
    learned: list[Floats] | None,
    tell: Tell,
) -> tuple[Floats, Floats]:
    """[V, K+1] what all steps of a kind earned, each draw with a Poisson bootstrap of the episodes, and [N]
    what the outcome gains for each unit of reward."""
    rng, draws = np.random.default_rng(0), credit.posterior.weights.shape[0]
    found, weight = np.zeros((len(kinds.names), draws)), np.zeros(draws)
    rates = np.ones(len(kinds.codes))
    for some, steps in credit.of_blocks(episodes, learned, log.totals):
        starts, lengths = rows.starts[some] - rows.starts[some.start], rows.lengths[some]
        earned = steps.drawn() if log.answers is None else credit.divided(steps, lengths)
        where = slice(rows.starts[some.start], rows.starts[some.start] + len(earned))
        if log.answers is not None:
            gained, odds = (np.add.reduceat(each, starts) for each in (earned[:, 0], steps.reward))
            rates[where] = np.repeat(gained / np.where(odds == 0, 1.0, odds), lengths)
        times = np.column_stack([np.ones(len(lengths)), rng.poisson(1.0, (len(lengths), draws - 1))])
        earned *= np.repeat(times, lengths, axis=0)
        found += (kinds.codes[where] == np.arange(len(found))[:, None]) @ earned
        weight += times.sum(axis=0)
        tell(some.stop, len(episodes))
    return found * len(episodes) / np.maximum(weight, 1.0), rates


def _own(credit: Credit, rows: Floats, kinds: _Kinds, mine: NDArray[np.bool_], rates: Floats) -> Floats:
    """[V] of the credit what the column itself has: its Shapley values, as `relabel --credit` writes them."""
    order = np.random.default_rng(0).permutation(len(rows))
    some = np.sort(order[:STEPS])
    shares = credit.posterior.shares(rows[some], rows[order[-MOST_BEHIND:]]).mean[:, :-1]
    fewer = kinds._replace(codes=kinds.codes[some])
    own = fewer.sums(shares[:, mine].sum(axis=1) * rates[some])
    return np.asarray(own * kinds.sums() / np.maximum(fewer.sums(), 1))


def _rules(kinds: _Kinds, rows: Rows, log: Log) -> Columns:
    """[V] of each: all of an outcome for the first step or the last, evenly for all, or the more the later;
    and, of yes and no, by what a chain of kinds loses without one."""
    totals, lengths, starts = np.nan_to_num(log.totals), rows.lengths, rows.starts
    behind = np.repeat(starts + lengths - 1, lengths) - np.arange(len(kinds.codes))
    decayed = 0.5 ** (behind / HALF_LIFE)
    whole = np.repeat(np.add.reduceat(decayed, starts), lengths)
    each = np.repeat(totals, lengths)
    found = {
        "first": np.where(behind == np.repeat(lengths - 1, lengths), each, 0.0),
        "last": np.where(behind == 0, each, 0.0),
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
