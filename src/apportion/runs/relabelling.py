"""Logged episodes with the learned reward of each step, and who earned it."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expanded
from apportion.core.config import Tell, check
from apportion.data.logged import Log
from apportion.data.rows import Rows
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


class Relabelled(NamedTuple):
    """What each row of a log gets."""

    rows: Rows
    reward: NDArray[np.float64]  # [N] the mean over lanes
    credit: dict[
        str, NDArray[np.float64]
    ]  # [N] of each dimension, and the baseline: they add up to the reward


def relabel_rows(
    run: RunFolder, data: str, exact: bool, credit: bool, precision: Precision, tell: Tell
) -> Relabelled:
    """Learned rewards of other data, or of those that the run was fitted to. With `exact`, what an episode's
    rewards miss of its outcome is spread evenly over its steps."""
    rows, log = read_for(run, data)
    unpaid = np.isnan(rows.totals)
    who = f"{data}: episode {np.argmax(unpaid) + 1} of {len(unpaid)} has no outcome"
    check(not (exact and unpaid.any()), f"{who}: fill it in, or relabel without --exact")
    learned = read_learned(run)
    rewards = np.concatenate(_rewards(run, learned, log, tell))
    needed = np.isnan(rewards[np.repeat(unpaid, rows.lengths)]).any()
    check(not needed, f"{who}, by which {learned.config.method} divides it: fill it in, or leave it out")
    shares = _credit(run, log, precision, tell) if credit else {}
    missing = np.zeros(len(rewards))
    if exact:
        sums = np.add.reduceat(rewards, rows.starts)
        missing = np.repeat((rows.totals - sums) / rows.lengths, rows.lengths)
    if credit:
        shares[_free("baseline", shares)] = rewards - sum(shares.values()) + missing
    return Relabelled(rows, rewards + missing, shares)


def _free(name: str, taken: dict[str, NDArray[np.float64]]) -> str:
    """The name, with as many strokes behind it as it takes: a dimension may be called like that."""
    while name in taken:
        name += "_"
    return name


def _rewards(run: RunFolder, learned: Learned, log: Log, tell: Tell) -> list[NDArray[np.float64]]:
    """[T] of each episode, the mean over lanes."""
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
            yield number, np.asarray(np.mean([lane[place] for lane in lanes], axis=0), np.float64)


def _together(lengths: NDArray[np.int64]) -> list[range]:
    """Numbers of episodes that are explained in one call, for each call takes a while of its own."""
    before = np.cumsum(lengths) - lengths
    firsts = np.flatnonzero(np.diff(before // _STEPS_EXPLAINED, prepend=-1)).tolist()
    return [range(first, end) for first, end in itertools.pairwise([*firsts, len(lengths)])]


def _credit(run: RunFolder, log: Log, precision: Precision, tell: Tell) -> dict[str, NDArray[np.float64]]:
    """[N] of each dimension, the mean over lanes."""
    explainer, spec = Explainer(run, precision), run.read_spec()
    lanes, count = range(explainer.config.lanes), len(log.totals)
    found = []
    for numbers in _together(np.array([len(each) for each in log.actions], np.int64)):
        shown = [plain_episode(spec, log, number) for number in numbers]
        parts = [Steps.of_episode(each["observations"], each["actions"]) for each in shown]
        steps = Steps(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        found.append(np.mean([explainer.explain(lane, steps).contributions for lane in lanes], axis=0))
        tell(numbers.stop, count)
    values = np.concatenate(found)
    names = [*spec.observation_names, *spec.action_names]
    return {name: values[:, place] for place, name in enumerate(names)}
