"""Logged episodes as a run knows them: facts about them as a Spec, and each as its learners see it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.core.categories import expand_actions, expand_observations
from apportion.core.config import Tell, UserError, check, silent
from apportion.core.spec import Spec
from apportion.core.types import Record
from apportion.data.columns import Columns
from apportion.data.encoding import MOST_CATEGORIES
from apportion.data.reading import read_rows
from apportion.data.rows import Log, Rows, cut
from apportion.data.texts import HASHING, with_vectors
from apportion.envs.messages import Arrays
from apportion.envs.spaces import learners_actions
from apportion.runs.folder import DataFile, RunFolder
from apportion.training.offline import with_last


def spec_of(data: str, log: Log) -> Spec:
    """Sizes and names of logged episodes. Actions have the range that was seen."""
    longest = max(map(len, log.actions))
    low, high = (
        np.array(edge([edge(each, axis=0) for each in log.actions], axis=0), np.float64)
        for edge in (np.min, np.max)
    )
    levels = np.array(log.levels[len(log.observation_names) :] or [0] * len(log.action_names))
    low, high = np.where(levels > 0, 0.0, low), np.where(levels > 0, np.maximum(levels - 1, 1), high)
    # All actions of a log, where they are categories or whole numbers and few, or only one was taken: more
    # than ten whole numbers are amounts, not choices.
    kinds = np.unique(np.concatenate(log.actions).astype(np.float64), axis=0)
    few = len(kinds) <= (MOST_CATEGORIES if levels.any() else 10) and bool(np.all(kinds == np.rint(kinds)))
    choices = tuple(tuple(kind) for kind in kinds.tolist()) if few or len(kinds) == 1 else ()
    return Spec(
        env_id=Path(data).name,
        observation_names=log.observation_names,
        action_names=log.action_names,
        max_episode_steps=longest,
        max_segment_steps=longest,
        action_low=tuple(low.tolist()),
        action_high=tuple(np.where(high > low, high, low + 1).tolist()),
        levels=log.levels if any(log.levels) else (),
        choices=choices,
        inputs=log.inputs if len(set(log.inputs)) < len(log.inputs) else (),
    )


def plain_episode(spec: Spec, log: Log, number: int) -> Arrays:
    """An episode with one number for each dimension: observations [T+1, S'], actions [T, A'] in [-1, 1]."""
    actions = learners_actions(spec, log.actions[number])
    observations = with_last(np.asarray(log.observations[number], np.float32), len(actions))
    known = len(log.observations[number]) > len(actions)
    if not known and log.levels:
        categories = np.flatnonzero(log.levels[: observations.shape[1]])
        observations[-1, categories] = observations[-2, categories]
    return {"observations": observations, "actions": actions}


def records_of(spec: Spec, log: Log) -> list[Record]:
    """All episodes as learners see them, numbered as they come. Where nobody knows whether one ended by
    itself, it counts as cut off: an end that all have could be paid for anything."""
    seen, done = np.concatenate(log.observations, dtype=np.float32), np.concatenate(log.actions)
    lengths, rows = (np.array([len(each) for each in part]) for part in (log.actions, log.observations))
    ended = [False] * len(lengths) if log.terminated is None else map(bool, log.terminated)
    observations = cut(expand_observations(spec, seen), rows)
    actions = cut(expand_actions(spec, learners_actions(spec, done)), lengths)
    every = zip(observations, actions, log.totals.tolist(), ended, strict=True)
    return [Record(*each, number) for number, each in enumerate(every)]


def read_for(run: RunFolder, data: str | None, embed: str | None = None) -> tuple[Rows, Log]:
    """The run's own data, or others in the way that those were read; outcomes are NaN where they are not
    known. An embedder of somebody's own is code: it is imported only where it was named again, by `embed`."""
    rows, as_log = reader_for(run, read_facts(run)["data"] if data is None else data, silent, embed)
    return rows, as_log(rows)


def reader_for(
    run: RunFolder, data: str, tell: Tell, embed: str | None
) -> tuple[Rows, Callable[[Rows], Log]]:
    """The same, with what makes a log of some of the episodes: of all, it may be many times as large."""
    facts = read_facts(run)
    encoding = facts["encoding"]
    named = encoding.embed in ("", HASHING, embed)
    check(named, f"{run.path}: texts became vectors by {encoding.embed}: say --embed {encoding.embed} again")
    rows = read_rows(data, facts["columns"] or Columns(), tell, paid=False)

    def as_log(some: Rows) -> Log:
        vectors = with_vectors(some, encoding.texts, encoding.embed)
        return encoding.apply(vectors).answered(facts["answers"], data)

    return rows, as_log


def from_origins(run: RunFolder, observations: Any, actions: Any) -> tuple[Any, Any]:
    """What somebody saw and did, counted as the run counts it; of other shapes as they are."""
    facts = run.read_data()
    if facts is None:
        return observations, actions
    given = (np.asarray(observations), np.asarray(actions))
    pairs = zip(given, facts["encoding"].origins(), strict=True)
    seen, done = (x - origin if origin.any() and x.shape[-1:] == origin.shape else x for x, origin in pairs)
    return seen, done


def read_facts(run: RunFolder) -> DataFile:
    """What the run was fitted to."""
    facts = run.read_data()
    if facts is None:
        raise UserError(f"{run.path} was trained on an environment: name a run that `apportion fit` made")
    return facts
