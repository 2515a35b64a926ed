"""Edges and episodes at some moments of training: one file of arrays each, checked when it is read.

A file that cannot be read, or does not fit the run, counts as absent; `damaged` names it.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check, one_line
from apportion.core.spec import block_shapes
from apportion.runs import atomic
from apportion.runs.atomic import Arrays, place

Episode = dict[str, NDArray[Any]]  # observations [T+1, S], actions [T, A], true_rewards [T], ...

EDGES = "edges"  # the folder of edges; any other has episodes
_COUNTS = "episodes_per_lane"
_PER_STEP = ("true_rewards", "redistributed", "segment_end")  # what readers need beside these is optional


class Sizes(NamedTuple):
    """What the arrays of a run must fit."""

    lanes: int
    states: int
    actions: int


def steps(folder: Path, sizes: Sizes) -> list[int]:
    """Steps whose snapshot can be read, oldest first."""
    return [step for step in atomic.steps(folder) if _reason(place(folder, step), sizes) is None]


def damaged(folder: Path, sizes: Sizes) -> list[str]:
    """A line for each snapshot that cannot be read."""
    reasons = {path: _reason(path, sizes) for path in (place(folder, step) for step in atomic.steps(folder))}
    return [f"{path} is left out: {reason}" for path, reason in reasons.items() if reason is not None]


def read(folder: Path, step: int, sizes: Sizes) -> Arrays:
    path = place(folder, step)
    try:
        return _fitting(path, sizes)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path} is damaged ({one_line(error)}): delete it") from error


def _fitting(path: Path, sizes: Sizes) -> Arrays:
    arrays, _ = atomic.read_arrays(path)
    (check_edges if path.parent.name == EDGES else check_episodes)(arrays, sizes)
    return arrays


def _reason(path: Path, sizes: Sizes) -> str | None:
    """Why a snapshot cannot be read; None where it can."""
    try:
        stat = path.stat()
        return _looked_at(path, stat.st_mtime_ns, stat.st_size, sizes)
    except OSError as error:
        return one_line(error)


@lru_cache(maxsize=1024)
def _looked_at(path: Path, modified: int, size: int, sizes: Sizes) -> str | None:
    """Read again only when the file has changed."""
    try:
        _fitting(path, sizes)
    except (ValueError, UserError) as error:
        return one_line(error)
    return None


def check_edges(arrays: Arrays, sizes: Sizes) -> None:
    """Edge probabilities [L, ...] of the run's dimensions; NaN where a lane has diverged."""
    lanes, states, actions = sizes
    shapes = {name: (lanes, *shape) for name, shape in block_shapes(states, actions).items()}
    shapes["policy_mask"] = (lanes, states)
    check("policy_mask" in arrays, "policy_mask is missing")
    both = ("state_to_reward", "action_to_reward")
    check(len(arrays.keys() & both) != 1, f"one of {' and '.join(both)} is missing")
    for name, block in arrays.items():
        wanted = shapes.get(name, (lanes, *block.shape[1:]))
        check(block.shape == wanted, f"{name} has shape {block.shape}, the run {wanted}")
        check(block.dtype.kind == "f", f"{name} holds {block.dtype.name}")
        inside = (block >= 0) & (block <= 1) | np.isnan(block)
        check(bool(inside.all()), f"{name} holds what is no probability")


def check_episodes(arrays: Arrays, sizes: Sizes) -> None:
    """Whole episodes of every lane, in the run's dimensions."""
    check(_COUNTS in arrays, f"{_COUNTS} is missing")
    counts = arrays[_COUNTS]
    good = counts.shape == (sizes.lanes,) and counts.dtype.kind in "iu" and bool((counts >= 0).all())
    check(good, f"{_COUNTS} is not a number for each of the {sizes.lanes} lanes")
    check(int(counts.sum()) <= len(arrays), f"{_COUNTS} promises more than there is")
    for lane, episodes in enumerate(by_lane(arrays)):
        for number, episode in enumerate(episodes):
            _check_episode(episode, sizes, f"lane{lane}.episode{number}")


def by_lane(arrays: Arrays) -> list[list[Episode]]:
    """The episodes of each lane."""
    lanes: list[list[Episode]] = [[{} for _ in range(count)] for count in arrays[_COUNTS]]
    places = {
        f"lane{lane}.episode{number}": episode
        for lane, episodes in enumerate(lanes)
        for number, episode in enumerate(episodes)
    }
    for key in sorted(arrays.keys() - {_COUNTS}):
        lane, number, name = [*key.split(".", 2), "", ""][:3]
        check(f"{lane}.{number}" in places, f"{key[:60]!r} is of no episode")
        places[f"{lane}.{number}"][name] = arrays[key]
    return lanes


def from_lanes(lanes: Sequence[Sequence[Episode]]) -> Arrays:
    """The other way round: arrays under one name each."""
    arrays: Arrays = {_COUNTS: np.array([len(episodes) for episodes in lanes], np.int32)}
    for lane, episodes in enumerate(lanes):
        for number, episode in enumerate(episodes):
            arrays |= {f"lane{lane}.episode{number}.{name}": array for name, array in episode.items()}
    return arrays


def _check_episode(episode: Episode, sizes: Sizes, name: str) -> None:
    absent = [each for each in ("observations", "actions", *_PER_STEP) if each not in episode]
    check(not absent, f"{name} has no {absent[0] if absent else ''}")
    length = len(np.atleast_1d(episode["actions"]))
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*_PER_STEP, "paid"), (length,))
    shapes |= {"observations": (length + 1, sizes.states), "actions": (length, sizes.actions)}
    for key, array in episode.items():
        wanted = shapes.get(key, array.shape)
        check(array.shape == wanted, f"{name}.{key} has shape {array.shape}, not {wanted}")
        check(array.dtype.kind in "fbiu", f"{name}.{key} holds {array.dtype.name}")
    check(length > 0, f"{name} has no step")
    for key in ("observations", "actions"):
        check(bool(np.isfinite(episode[key]).all()), f"{name}.{key} holds NaN or infinity")
