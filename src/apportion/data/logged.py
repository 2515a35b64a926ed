"""Logged episodes from a file: what people have who do not train, but ask who earned the outcome."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.data.npz import read_arrays

REQUIRED = ("observations", "actions", "lengths", "totals")
NAMES = ("observation_names", "action_names")
# Beside observations and actions, where all episodes stand in one row.
IN_ONE_ROW = ("rewards", "terminals", "timeouts", "episode_terminals")


class Log(NamedTuple):
    """Episodes (or segments) without padding, what each was paid, and what the dimensions are called."""

    observations: list[NDArray[Any]]  # of each episode, [T+1, S]; [T, S] where the last one is not known
    actions: list[NDArray[Any]]  # [T, A]
    totals: NDArray[np.float64]  # [E]
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    levels: tuple[int, ...] = ()  # [S+A] how many categories a dimension has, 0: numbers; empty: all numbers
    inputs: tuple[str, ...] = ()  # [S+A] of which input each dimension is a part; empty: each its own
    notes: tuple[str, ...] = ()  # what was done to the data on the way here
    terminated: NDArray[np.bool_] | None = None  # [E] which ended by themselves, where that is known
    answers: tuple[float, float] | None = (
        None  # what no and yes are in the data, whose totals are 0 and 1 here
    )

    def answered(self, answers: Sequence[float] | None, source: str) -> "Log":
        """With totals 1 for yes and 0 for no, where these two are all that outcomes can be."""
        if answers is None:
            return self
        no, yes = answers
        other = self.totals[~np.isin(self.totals, answers) & ~np.isnan(self.totals)]
        if other.size:
            raise UserError(
                f"{source}: an outcome is {other[0]:g}, but outcomes are {no:g} for no and {yes:g} for yes: "
                "mend it, or fit with --outcome-kind amount"
            )
        said = np.where(np.isnan(self.totals), np.nan, (self.totals == yes).astype(np.float64))
        return self._replace(totals=said, answers=(no, yes))


def read_npz(path: Path, paid: bool = True) -> Log:
    """Arrays observations [E, T+1, S], actions [E, T, A], lengths [E], totals [E]; names are optional, and
    terminated [E]: whether an episode ended by itself. So are totals where nobody asks what was `paid`."""
    arrays = load_npz(path)
    if not paid and "lengths" in arrays:
        arrays = {"totals": np.full(len(np.atleast_1d(arrays["lengths"])), np.nan), **arrays}
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(f"{path} has no array {missing[0]!r}: it needs {', '.join(REQUIRED)}")
    observations, actions, lengths, totals = (arrays[name] for name in REQUIRED)
    _check_shapes(path, observations, actions, lengths, totals)
    return Log(
        observations=[episode[: length + 1] for episode, length in zip(observations, lengths, strict=True)],
        actions=[episode[:length] for episode, length in zip(actions, lengths, strict=True)],
        totals=np.asarray(totals, np.float64),
        observation_names=_names(path, arrays, "observation_names", observations.shape[2], "s"),
        action_names=_names(path, arrays, "action_names", actions.shape[2], "a"),
        terminated=_terminated(path, arrays, len(totals)),
    )


def load_npz(path: Path, others: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays that are known here, of episodes or in one row, checked before they are unpacked; others are
    left alone, unless they are asked for."""
    return read_arrays(path, (*REQUIRED, *IN_ONE_ROW, "terminated"), NAMES, others)


def _check_shapes(
    path: Path, observations: NDArray[Any], actions: NDArray[Any], lengths: NDArray[Any], totals: NDArray[Any]
) -> None:
    if observations.ndim != 3 or actions.ndim != 3:
        raise UserError(f"{path}: observations must be [E, T+1, S] and actions [E, T, A]")
    episodes, steps, _ = actions.shape
    if observations.shape[:2] != (episodes, steps + 1):
        raise UserError(
            f"{path}: observations {observations.shape} and actions {actions.shape} do not fit together: "
            "each episode has one more observation than actions"
        )
    if lengths.shape != (episodes,) or totals.shape != (episodes,):
        raise UserError(f"{path}: lengths and totals must have one entry for each of the {episodes} episodes")
    if episodes == 0:
        raise UserError(f"{path} holds no episode")
    if 0 in observations.shape or 0 in actions.shape:
        raise UserError(f"{path}: observations and actions need one dimension and one step at the least")
    if not np.issubdtype(lengths.dtype, np.integer) or lengths.min() < 1 or lengths.max() > steps:
        raise UserError(f"{path}: lengths must be whole numbers from 1 to {steps}")


def _terminated(path: Path, arrays: dict[str, NDArray[Any]], episodes: int) -> NDArray[np.bool_] | None:
    if "terminated" not in arrays:
        return None
    terminated = arrays["terminated"]
    if terminated.shape != (episodes,) or terminated.dtype.kind not in "biu":
        raise UserError(f"{path}: terminated must say True or False for each of the {episodes} episodes")
    return terminated.astype(np.bool_)


def _names(path: Path, arrays: dict[str, NDArray[Any]], key: str, size: int, letter: str) -> tuple[str, ...]:
    if key not in arrays:
        return tuple(f"{letter}{index}" for index in range(size))
    if arrays[key].shape != (size,):
        raise UserError(f"{path}: {key} must be {size} names")
    return tuple(str(name) for name in arrays[key])
