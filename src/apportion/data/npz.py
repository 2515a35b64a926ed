"""Arrays of NumPy, in an .npz file that somebody else made: those of episodes, or d3rlpy's flat ones.

What an array is stands in its first bytes, so that nothing is unpacked before it is known to be wanted, of
numbers, and as large as it says.
"""

import math
import tokenize
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check
from apportion.data import d3rlpy
from apportion.data.columns import Choice, Columns
from apportion.data.rows import (
    REAL,
    REWARD,
    Column,
    Earned,
    Floats,
    Log,
    Rows,
    check_unpacked,
    in_bytes,
    in_short,
    twice,
)

TEXT = "U"
REQUIRED = ("observations", "actions", "lengths", "totals")
_KINDS = {
    **dict.fromkeys((*REQUIRED, "terminated", *d3rlpy.FLAT, *d3rlpy.OTHER_ENDS), REAL),
    **dict.fromkeys(("observation_names", "action_names"), TEXT),
}

_DAMAGE = (
    *(BadZipFile, zlib.error, EOFError, OSError),
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError),  # of what stands before an array's numbers
)

Arrays = dict[str, NDArray[Any]]


# --- Arrays


def load_npz(path: Path, others: bool = False) -> Arrays:
    """The arrays that are known here, as far as the file has them: real numbers or texts. UserError where
    they are anything else. With `others` all that the file has besides, if these are numbers or texts."""
    check(path.exists(), f"no file {path}")
    plain = path.is_file() and is_zipfile(path)
    check(plain, f"{path} is no .npz file: write it with numpy.savez, as plain arrays")
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = {**dict.fromkeys(members if others else (), REAL + TEXT), **_KINDS}
            names = [name for name in wanted if name in members]
            for info in members.values():  # a name that is damaged in one of two places is no other array's
                archive.open(info).close()
            for name in names:  # all of them, before the first is unpacked
                _check(path, name, archive, members[name], wanted[name])
            chosen = [members[name] for name in names]
            packed = sum(each.compress_size for each in chosen)
            check_unpacked(str(path), sum(each.file_size for each in chosen), packed)
            found = {}
            for name in names:
                with archive.open(members[name]) as file:
                    found[name] = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
            return found
    except _DAMAGE as error:
        raise UserError(f"{path} is damaged ({in_short(error)}): write it again with numpy.savez") from error
    except (NotImplementedError, RuntimeError, MemoryError) as error:  # encrypted, or packed in an odd way
        raise UserError(f"{path} cannot be read ({in_short(error)}): write it with numpy.savez") from error


def _check(path: Path, name: str, archive: ZipFile, member: ZipInfo, kinds: str) -> None:
    """By what stands before its numbers."""
    with archive.open(member) as file:
        old = np.lib.format.read_magic(file) == (1, 0)  # a plain array's head is never newer than (2, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"{member.filename[:40]} has an odd shape")
    what = {TEXT: "texts", REAL: "real numbers"}.get(kinds, "numbers or texts")
    check(dtype.kind in kinds, f"{path}: {name} holds {dtype.name}, not {what}: convert it first")
    said = dtype.itemsize * math.prod(shape)
    there = f"{in_bytes(said)}, but there are {member.file_size:,}"
    check(said <= member.file_size, f"{path}: {name} says it has {there}")


# --- Episodes


def read_npz(path: Path, paid: bool = True) -> Log:
    """Arrays observations [E, T+1, S], actions [E, T, A], lengths [E], totals [E]; names are optional, and
    terminated [E]: whether an episode ended by itself. So are totals where nobody asks what was `paid`."""
    return _log(path, load_npz(path), paid)


def _log(path: Path, arrays: Arrays, paid: bool) -> Log:
    if not paid and "lengths" in arrays:
        arrays = {"totals": np.full(len(np.atleast_1d(arrays["lengths"])), np.nan), **arrays}
    for name in REQUIRED:
        check(name in arrays, f"{path} has no array {name!r}: it needs {', '.join(REQUIRED)}")
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


def _check_shapes(
    path: Path, observations: NDArray[Any], actions: NDArray[Any], lengths: NDArray[Any], totals: NDArray[Any]
) -> None:
    shapes = f"{path}: observations must be [E, T+1, S] and actions [E, T, A]"
    check(observations.ndim == actions.ndim == 3, shapes)
    episodes, steps, _ = actions.shape
    both = f"observations {observations.shape} and actions {actions.shape}"
    fix = "each episode has one more observation than actions"
    check(observations.shape[:2] == (episodes, steps + 1), f"{path}: {both} do not fit together: {fix}")
    entries = f"{path}: lengths and totals must have one entry for each of the {episodes} episodes"
    check(lengths.shape == totals.shape == (episodes,), entries)
    check(episodes > 0, f"{path} holds no episode")
    empty = 0 in observations.shape or 0 in actions.shape
    check(not empty, f"{path}: observations and actions need one dimension and one step at the least")
    whole = np.issubdtype(lengths.dtype, np.integer) and lengths.min() >= 1 and lengths.max() <= steps
    check(bool(whole), f"{path}: lengths must be whole numbers from 1 to {steps}")


def _terminated(path: Path, arrays: Arrays, episodes: int) -> NDArray[np.bool_] | None:
    terminated = arrays.get("terminated")
    if terminated is None:
        return None
    good = terminated.shape == (episodes,) and terminated.dtype.kind in "biu"
    check(good, f"{path}: terminated must say True or False for each of the {episodes} episodes")
    return terminated.astype(np.bool_)


def _names(path: Path, arrays: Arrays, key: str, size: int, letter: str) -> tuple[str, ...]:
    if key not in arrays:
        return tuple(f"{letter}{index}" for index in range(size))
    check(arrays[key].shape == (size,), f"{path}: {key} must be {size} names")
    return tuple(str(name) for name in arrays[key])


# --- As a format


def read(data: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """The steps of a file in either layout."""
    arrays = load_npz(Path(data))
    if d3rlpy.is_flat(arrays):
        return d3rlpy.flat_rows(data, arrays)
    log = _log(Path(data), arrays, paid)
    return Rows(
        source=data,
        lengths=np.array([len(each) for each in log.actions], np.int64),
        states=_by_name(log.observation_names, [each[:-1] for each in log.observations]),
        actions=_by_name(log.action_names, log.actions),
        totals=log.totals,
        last=_by_name(log.observation_names, [each[-1:] for each in log.observations]),
        terminated=log.terminated,
        named="observation_names" in arrays and "action_names" in arrays,
    )


def _by_name(names: tuple[str, ...], episodes: list[NDArray[Any]]) -> dict[str, Column]:
    """Columns [N, D] under their names."""
    again = twice(names)
    check(again is None, f"two dimensions are called {again!r}: rename one")
    return dict(zip(names, np.concatenate(episodes).T, strict=True))


def write(data: str, target: Path, earned: Earned) -> None:
    """The same arrays, and more of the same layout."""
    arrays = load_npz(Path(data), others=True)
    if d3rlpy.is_flat(arrays):
        arrays |= d3rlpy.relabelled(arrays, earned)
    else:
        new = {REWARD: earned.reward, **earned.arrays()}
        longest = arrays["actions"].shape[1]
        arrays |= {name: _padded(earned.rows, values, longest) for name, values in new.items()}
    if earned.credit:
        arrays["credit_names"] = np.array(list(earned.credit))
    with target.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _padded(rows: Rows, values: Floats, longest: int) -> Floats:
    """[E, T, ...] with zeros where an episode has ended."""
    padded = np.zeros((len(rows.lengths), longest, *values.shape[1:]))
    padded[np.arange(longest) < rows.lengths[:, None]] = values
    return padded
