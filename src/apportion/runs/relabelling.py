"""Logged episodes with the learned reward of each step, and who earned it."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expanded
from apportion.core.config import Tell, check, silent
from apportion.data.rows import CREDIT, REWARD, Earned, Log, Rows
from apportion.runs.credit import INTERVAL, Credit, half_width, quantiles, read_credit, rows_of
from apportion.runs.credit import Steps as Credited
from apportion.runs.explain import Precision, Steps
from apportion.runs.explaining import Explainer
from apportion.runs.folder import RunFolder
from apportion.runs.learned import Learned, read_learned
from apportion.runs.logged import learners_record, plain_episode, read_for
from apportion.training.evaluate import make_redistribute
from apportion.training.offline import episode_arrays
from apportion.training.uneven import Group, groups, padded_to

_STEPS_AT_ONCE = 100_000  # padding included
_STEPS_EXPLAINED = 500  # at once, or those of one longer episode
_CHANGE = "probability_change"  # the column that is written for outcomes of yes and no


Columns = dict[str, NDArray[np.float64]]


def relabel_rows(
    run: RunFolder, data: str, exact: bool, credit: bool, precision: Precision, tell: Tell
) -> Earned:
    """Credit of other data, or of those that the run was fitted to. What noise added to an outcome that is
    known is spread evenly over the steps; with `exact`, so is a level that all outcomes have in common."""
    rows, log = read_for(run, data)
    unpaid = np.isnan(rows.totals)
    who = f"{data}: episode {np.argmax(unpaid) + 1} of {len(unpaid)} has no outcome"
    check(not (exact and unpaid.any()), f"{who}: fill it in, or relabel without --exact")
    answered = log.answers is not None
    check(
        not (answered and exact and credit), "shares are log odds, and --exact makes amounts: leave out one"
    )
    learned = read_learned(run)
    rewards = np.concatenate(_rewards(run, learned, log, tell))
    needed = np.isnan(rewards[np.repeat(unpaid, rows.lengths)]).any()
    check(not needed, f"{who}, by which {learned.config.method} divides it: fill it in, or leave it out")
    reward, bounds = _with_intervals(run, log, rows, rewards, exact)
    shares: Columns = {}
    if credit:
        shares, more = _credit(run, learned.sound, log, precision, tell)
        shares[_free("baseline", shares)] = reward - sum(shares.values())
        bounds |= more
    return Earned(rows, reward, shares, bounds)


def method_rewards(run: RunFolder, log: Log) -> list[NDArray[np.float64]]:
    """[T] of each episode, by what the run's method has learned: the mean over lanes."""
    return _rewards(run, read_learned(run), log, silent)


def _with_intervals(
    run: RunFolder, log: Log, rows: Rows, learned: NDArray[np.float64], exact: bool
) -> tuple[NDArray[np.float64], Columns]:
    """[N] the credit of each step, and the ends of its interval."""
    found, spec = read_credit(run), run.read_spec()
    bounds: Columns = {}
    reward = learned
    if found is not None:
        episodes = [rows_of(learners_record(spec, log, number, number)) for number in range(len(rows.totals))]
        steps = list(found.of_episodes(episodes, rows.split(learned), log.totals))
        if log.answers is not None:
            return _of_answers(found, steps, rows, log.answers, exact)
        low, high = (
            np.concatenate(end) for end in zip(*(each.within(INTERVAL) for each in steps), strict=True)
        )
        reward = np.concatenate([each.reward for each in steps])
        bounds = {f"{REWARD}_low": low, f"{REWARD}_high": high}
    check(
        not exact or log.answers is None,
        f"{run.path} has no intervals, without which yes and no are not made",
    )
    return _exactly(rows, reward, bounds) if exact else (reward, bounds)


def _exactly(rows: Rows, reward: NDArray[np.float64], bounds: Columns) -> tuple[NDArray[np.float64], Columns]:
    """With what is missing of each outcome spread evenly."""
    missing = (rows.totals - np.add.reduceat(reward, rows.starts)) / rows.lengths
    more = np.repeat(missing, rows.lengths)
    return reward + more, {name: end + more for name, end in bounds.items()}


def _of_answers(
    found: Credit, steps: list[Credited], rows: Rows, answers: tuple[float, float], exact: bool
) -> tuple[NDArray[np.float64], Columns]:
    """[N] log odds of yes, and how much steps changed its probability; or, exactly, parts of the outcome in
    the data's own numbers."""
    if exact:
        parts = np.concatenate([found.divided(each) for each in steps]) * (answers[1] - answers[0])
        low, high = quantiles(parts, INTERVAL)
        return _exactly(rows, parts[:, 0], {f"{REWARD}_low": low, f"{REWARD}_high": high})
    columns: Columns = {}
    told = {
        REWARD: [(each.reward, *each.within(INTERVAL)) for each in steps],
        _CHANGE: [found.changes(each, INTERVAL) for each in steps],
    }
    for name, each in told.items():
        middle, low, high = (np.concatenate(part) for part in zip(*each, strict=True))
        columns |= {name: middle, f"{name}_low": low, f"{name}_high": high}
    return columns.pop(REWARD), columns


def _free(name: str, taken: dict[str, NDArray[np.float64]]) -> str:
    """The name, with as many strokes behind it as it takes: a dimension may be called like that."""
    while name in taken:
        name += "_"
    return name


def _rewards(run: RunFolder, learned: Learned, log: Log, tell: Tell) -> list[NDArray[np.float64]]:
    """[T] of each episode, the mean over sound lanes."""
    lengths = np.array([len(each) for each in log.actions], np.int64)
    found: dict[int, NDArray[np.float64]] = {}
    for group in groups(lengths, int(lengths.max())):
        for number, rewards in _of_group(run, learned, log, group):
            found[number] = rewards
            tell(len(found), len(lengths))
    return [found[number] for number in range(len(lengths))]


def _of_group(
    run: RunFolder, learned: Learned, log: Log, group: Group
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Numbers of episodes that are padded alike, and [T] of each."""
    spec = run.read_spec()
    redistribute = make_redistribute(learned.method, padded_to(expanded(spec), group.steps))
    at_once = max(1, _STEPS_AT_ONCE // group.steps)
    for first in range(0, len(group.numbers), at_once):
        numbers = group.numbers[first : first + at_once].tolist()
        records = [learners_record(spec, log, number, number) for number in numbers]
        # The last part is filled up: another number of episodes would be another program.
        some = [episode_arrays(record) for record in records]
        some += some[:1] * (at_once - len(some) if first else 0)
        lanes = redistribute(learned.models, [some] * learned.config.lanes)
        for place, number in enumerate(numbers):
            mean = np.mean([lanes[lane][place] for lane in learned.sound], axis=0)
            yield number, np.asarray(mean, np.float64)


def _together(lengths: NDArray[np.int64]) -> list[range]:
    """Numbers of episodes that are explained in one call, for each call takes a while of its own."""
    before = np.cumsum(lengths) - lengths
    firsts = np.flatnonzero(np.diff(before // _STEPS_EXPLAINED, prepend=-1)).tolist()
    return [range(first, end) for first, end in itertools.pairwise([*firsts, len(lengths)])]


def _credit(
    run: RunFolder, lanes: list[int], log: Log, precision: Precision, tell: Tell
) -> tuple[Columns, Columns]:
    """[N] of each dimension, the mean over lanes, and the ends of their intervals."""
    explainer, spec = Explainer(run, precision), run.read_spec()
    count = len(log.totals)
    found, spreads = [], []
    for numbers in _together(np.array([len(each) for each in log.actions], np.int64)):
        shown = [plain_episode(spec, log, number) for number in numbers]
        parts = [Steps.of_episode(each["observations"], each["actions"]) for each in shown]
        steps = Steps(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        explained = [explainer.explain(lane, steps) for lane in lanes]
        found.append(np.mean([each.contributions for each in explained], axis=0))
        if explainer.credit is not None:
            spreads.append(np.mean([np.asarray(each.deviations) for each in explained], axis=0))
        tell(numbers.stop, count)
    values, names = np.concatenate(found), explainer.names
    bounds: Columns = {}
    if spreads:
        half = half_width(INTERVAL) * np.concatenate(spreads)
        for place, name in enumerate(names):
            bounds[f"{CREDIT}_{name}_low"] = values[:, place] - half[:, place]
            bounds[f"{CREDIT}_{name}_high"] = values[:, place] + half[:, place]
    return {name: values[:, place] for place, name in enumerate(names)}, bounds
