"""Data sets of Minari, by their id: those that lie on this machine. Their episodes have one observation more
than steps; an episode's outcome is the sum of its rewards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, nearest
from apportion.data.d3rlpy import counted
from apportion.data.room import check_room
from apportion.data.rows import Column, Rows


def minari() -> Any:
    """The package, or how to get it."""
    try:
        import minari
    except ImportError:
        raise UserError("Minari data sets are read with minari: pip install 'apportion[minari]'") from None
    return minari


def open_set(name: str) -> Any:
    """A data set on this machine."""
    package = minari()
    try:
        return package.load_dataset(name)
    except (FileNotFoundError, ValueError):
        here = list(package.list_local_datasets()) or ["none"]
        raise UserError(
            f"no file and no Minari data set {name!r} on this machine{nearest(name, here)}: "
            f"`minari download {name}` fetches one"
        ) from None


def read(name: str, tell: Tell) -> Rows:
    """All steps of a data set."""
    found = open_set(name)
    observed, acted, rewards, lengths, ended = [], [], [], [], []
    count = int(found.total_episodes)
    if count == 0:
        raise UserError(f"{name} holds no episode")
    for number, episode in enumerate(found.iterate_episodes(), start=1):
        if number == 1:
            wide = sum(part.size for part in leaves(episode.observations)) // max(len(episode), 1)
            check_room(name, wide * int(found.total_steps))
        observed.append(flat(found.observation_space, episode.observations))
        acted.append(flat(found.action_space, episode.actions))
        rewards.append(float(np.sum(episode.rewards, dtype=np.float64)))
        lengths.append(len(episode))
        ended.append(bool(episode.terminations[-1]))
        tell(number, count)
    return Rows(
        source=name,
        lengths=np.array(lengths, np.int64),
        states=_columns(name, "s", [[part[:-1] for part in each] for each in observed]),
        actions=_columns(name, "a", acted),
        totals=np.array(rewards),
        last=_columns(name, "s", [[part[-1:] for part in each] for each in observed]),
        terminated=np.array(ended, np.bool_),
        named=False,
    )


def flat(space: Any, values: Any) -> list[NDArray[Any]]:
    """Arrays [T, D] of the parts of a space, those of dictionaries and tuples one after the other. Whole
    numbers stay such only where the space is one of categories."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        array = np.asarray(values)
        if type(space).__name__ == "Discrete":
            return [array.reshape(-1, 1).astype(np.int64)]
        return [array.reshape(len(array), -1).astype(np.float64)]
    pairs = inner.items() if isinstance(inner, dict) else enumerate(inner)
    return [part for key, each in pairs for part in flat(each, values[key])]


def leaves(values: Any) -> list[NDArray[Any]]:
    """All arrays in dictionaries and tuples."""
    if isinstance(values, dict):
        return [leaf for each in values.values() for leaf in leaves(each)]
    if isinstance(values, tuple):
        return [leaf for each in values for leaf in leaves(each)]
    return [np.asarray(values)]


def _columns(name: str, letter: str, episodes: list[list[NDArray[Any]]]) -> dict[str, Column]:
    parts = [counted(name, letter, np.concatenate(part)) for part in zip(*episodes, strict=True)]
    columns = [column for part in parts for column in part.values()]
    return {f"{letter}{place}": column for place, column in enumerate(columns)}
