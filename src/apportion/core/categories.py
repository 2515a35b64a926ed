"""Dimensions with categories instead of numbers: one column for people, entries of a one-hot vector for
learners. Of two categories one entry is enough.

People's side is a Spec with `levels`: an observed category is its number, an action's is scaled to [-1, 1] as
all actions are. Learners' side is `expanded(spec)`, whose graphs `collapsed` brings back.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Spec

Arrays = dict[str, NDArray[Any]]


def widths(levels: Sequence[int]) -> NDArray[np.int64]:
    """How many entries each dimension has for learners."""
    return np.array([count if count > 2 else 1 for count in levels], np.int64)


def expanded(spec: Spec) -> Spec:
    """The spec as learners know it; the same where everything is a number."""
    if not any(spec.levels):
        return dataclasses.replace(spec, inputs=()) if spec.inputs else spec
    states = spec.observation_size
    return dataclasses.replace(
        spec,
        observation_names=_entry_names(spec.observation_names, spec.levels[:states]),
        action_names=_entry_names(spec.action_names, spec.levels[states:]),
        action_low=_repeated(spec.action_low, spec.levels[states:]),
        action_high=_repeated(spec.action_high, spec.levels[states:]),
        levels=(),
        inputs=(),
    )


def policy_spec(spec: Spec) -> Spec:
    """The spec as a policy from a log knows it: discrete where all actions are some choices."""
    known = expanded(spec)
    if not spec.choices:
        return known
    names = tuple(" ".join(f"{value:g}" for value in choice) for choice in spec.choices)
    return dataclasses.replace(
        known, action_names=names, action_low=(), action_high=(), discrete=True, choices=(), inputs=()
    )


def expand_observations(spec: Spec, observations: NDArray[Any]) -> NDArray[Any]:
    """[..., S] with numbers of categories, as learners know it."""
    return one_hot(observations, spec.levels[: spec.observation_size])


def expand_actions(spec: Spec, actions: NDArray[Any]) -> NDArray[Any]:
    """[..., A] in [-1, 1], as learners know it: entries of a one-hot vector are -1 or 1."""
    levels = spec.levels[spec.observation_size :]
    if not any(levels):
        return actions
    scale = np.array([(count - 1) / 2 if count > 2 else 1.0 for count in levels])
    shift = np.array([float(count > 2) for count in levels])
    entries = one_hot((actions + shift) * scale, levels)
    hot = np.repeat(np.array(levels) > 2, widths(levels))
    return np.where(hot, 2 * entries - 1, entries).astype(actions.dtype)


def one_hot(values: NDArray[Any], levels: Sequence[int]) -> NDArray[Any]:
    """Columns [..., D], of which those with more than two levels become that many."""
    if not any(count > 2 for count in levels):
        return values
    sizes = widths(levels)
    hot, starts = np.repeat(sizes > 1, sizes), np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = np.repeat(values, sizes, axis=-1)
    found[..., hot] = np.rint(found[..., hot]) == (np.arange(len(hot)) - starts)[hot]
    return found


def collapsed(spec: Spec, blocks: Mapping[str, NDArray[Any]]) -> Arrays:
    """Blocks of a graph over learners' entries as those over people's dimensions: an edge of any entry is one
    of its dimension. Axes before (lanes) stay."""
    if not any(spec.levels):
        return dict(blocks)
    sizes = widths(spec.levels[: spec.observation_size]), widths(spec.levels[spec.observation_size :])
    states, actions = (np.cumsum(each) - each for each in sizes)  # where each dimension's entries begin
    axes = {
        "state_to_reward": (states,),
        "action_to_reward": (actions,),
        "state_to_state": (states, states),
        "action_to_state": (actions, states),
        "policy_mask": (states,),
    }
    found = dict(blocks)
    for name, starts in axes.items():
        for axis in range(-len(starts), 0):
            if name in found and found[name].shape[axis] > 0:
                found[name] = np.maximum.reduceat(found[name], starts[axis], axis=axis)
    return found


def owners(spec: Spec) -> NDArray[np.int64]:
    """Of each of learners' entries (actions after states) the dimension that it belongs to."""
    count = spec.observation_size + spec.action_size
    return np.repeat(np.arange(count), widths(spec.levels or (0,) * count))


def input_names(spec: Spec) -> list[str]:
    """What people call what goes in: a dimension, or all of a vector."""
    return list(dict.fromkeys(spec.inputs or (*spec.observation_names, *spec.action_names)))


def input_owners(spec: Spec) -> NDArray[np.int64]:
    """Of each of learners' entries the input that it belongs to."""
    names, place = input_names(spec), owners(spec)
    if not spec.inputs:
        return place
    return np.array([names.index(name) for name in spec.inputs], np.int64)[place]


def _entry_names(names: Sequence[str], levels: Sequence[int]) -> tuple[str, ...]:
    return tuple(
        f"{name}[{entry}]" if count > 2 else name
        for name, count in zip(names, levels, strict=True)
        for entry in range(count if count > 2 else 1)
    )


def _repeated(values: Sequence[float], levels: Sequence[int]) -> tuple[float, ...]:
    return tuple(np.repeat(np.array(values), widths(levels)).tolist()) if values else ()
