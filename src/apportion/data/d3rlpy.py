"""Episodes as d3rlpy writes them: its `dump` (HDF5, arrays of each episode), and the flat arrays of its
MDPDataset, which D4RL has too: observations [N, S], actions [N, A], rewards [N], terminals [N].

Neither has the observation after an episode's last step. An episode's outcome is the sum of its rewards.
Which ended by themselves is known where a file tells such ends from others: where all are `terminals`, these
may mean either. For a run that knows from other data what they mean, they mean that.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.data.npz import REAL, check_unpacked
from apportion.data.room import check_room
from apportion.data.rows import Column, Rows

HDF5 = (".h5", ".hdf5")
FLAT = ("observations", "actions", "rewards", "terminals")
_PARTS = ("observations", "actions", "rewards")
_COUNTS = ("num_episodes", "total_size")
_OTHER_ENDS = ("timeouts", "episode_terminals")  # beside terminals: of episodes that were cut, or of all

Array = NDArray[Any]


def h5py() -> Any:
    """The package, or how to get it."""
    try:
        import h5py
    except ImportError:
        raise UserError("HDF5 files are read with h5py: pip install 'apportion[minari]'") from None
    return h5py


def read(path: Path) -> Rows:
    """The steps of an HDF5 file in either layout."""
    if not path.is_file():
        raise UserError(f"no file {path}")
    package = h5py()
    try:
        with package.File(path, "r") as file:
            names = [name for name in (*FLAT, *_OTHER_ENDS) if name in file]
            flat = is_flat(file)
            arrays = _arrays(path, file, names if flat else _dumped_names(path, file))
            return flat_rows(str(path), arrays) if flat else _dumped_rows(str(path), arrays)
    except UserError:
        raise
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, MemoryError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path} cannot be read as HDF5 ({reason}): write it again") from error


def _arrays(path: Path, file: Any, names: list[str]) -> dict[str, Array]:
    """Arrays of real numbers that stand in the file itself, checked before the first is unpacked."""
    package, found = h5py(), {}
    for name in names:
        check(
            isinstance(file.get(name, getlink=True), package.HardLink),
            f"{path}: {name} is a link to somewhere else: write it as an array",
        )
        each = found[name] = file[name]
        plain = isinstance(each, package.Dataset) and not each.is_virtual and not each.external
        check(plain, f"{path}: {name} is no array of this file: write it as one")
        check(
            each.dtype.kind in REAL, f"{path}: {name} holds {each.dtype}, not real numbers: convert it first"
        )
    check_room(str(path), sum(each.size for each in found.values()))
    stored = sum(each.id.get_storage_size() for each in found.values())
    check_unpacked(path, sum(each.nbytes for each in found.values()), stored)
    return {name: np.asarray(each[()]) for name, each in found.items()}


def is_flat(names: Any) -> bool:
    """Whether a file has the flat arrays."""
    return all(name in names for name in FLAT)


def flat_rows(source: str, arrays: Mapping[str, Array]) -> Rows:
    """Steps from flat arrays."""
    rewards = np.asarray(arrays["rewards"], np.float64).reshape(-1)
    if not len(rewards):
        raise UserError(f"{source} holds no step")
    lengths = flat_lengths(source, arrays)
    told = any(name in arrays for name in _OTHER_ENDS)
    terminated = _flags(arrays["terminals"])[np.cumsum(lengths) - 1]
    return _rows(source, arrays["observations"], arrays["actions"], rewards, lengths, terminated, told)


def flat_lengths(source: str, arrays: Mapping[str, Array]) -> NDArray[np.int64]:
    """[E] steps of each episode: up to and with each end, and what is left after the last one."""
    count = len(np.asarray(arrays["rewards"]).reshape(-1))
    for name in ("observations", "actions", "terminals", *_OTHER_ENDS):
        array = np.asarray(arrays.get(name, arrays["terminals"]))
        rows = array.size if name in ("terminals", *_OTHER_ENDS) else len(np.atleast_1d(array))
        check(rows == count, f"{source}: {name} has {rows} rows, but rewards {count}: mend it")
    ends = np.zeros(count, np.bool_)
    for name in ("terminals", *_OTHER_ENDS):
        if name in arrays:
            ends |= _flags(arrays[name])
    ends[-1] = True
    return np.diff(np.flatnonzero(ends), prepend=-1)


def _flags(values: Array) -> NDArray[np.bool_]:
    return np.asarray(values).reshape(-1).astype(np.bool_)


def _dumped_names(path: Path, file: Any) -> list[str]:
    """Arrays of a dump, by episodes: `num_episodes`, which older versions called `total_size`."""
    [counted] = [name for name in _COUNTS if name in file][:1] or [""]
    check(bool(counted), f"{path} has neither the arrays {', '.join(FLAT)}, nor the episodes of d3rlpy")
    count = int(_arrays(path, file, [counted])[counted])
    check(count > 0, f"{path} holds no episode")
    check(count <= len(file), f"{path} has not {count} episodes, as {counted} says: mend it")
    names = [f"{part}_{number}" for part in _PARTS for number in range(count)]
    missing = [name for name in names if name not in file]
    says = "only vectors and numbers can be read, not tuples"
    check(not missing, f"{path} has no {missing[0] if missing else ''!r}: {says}")
    return names + [name for name in (f"terminated_{number}" for number in range(count)) if name in file]


def _dumped_rows(source: str, file: Mapping[str, Array]) -> Rows:
    count = sum(name.startswith("rewards_") for name in file)
    observations, actions, rewards = ([file[f"{name}_{n}"] for n in range(count)] for name in _PARTS)
    lengths = np.array([len(each) for each in rewards], np.int64)
    for number, (seen, done, length) in enumerate(zip(observations, actions, lengths, strict=True)):
        if not len(seen) == len(done) == length or length == 0:
            shapes = f"{len(seen)} observations, {len(done)} actions and {length} rewards"
            raise UserError(f"{source}: episode {number} has {shapes}: give one of each for every step")
    seen_at, done_at = _joined(source, "observations", observations), _joined(source, "actions", actions)
    flat = np.concatenate([np.asarray(each, np.float64).reshape(-1) for each in rewards])
    ended = [f"terminated_{number}" for number in range(count)]
    told = all(name in file for name in ended)
    terminated = np.array([bool(file[name]) for name in ended]) if told else None
    return _rows(source, seen_at, done_at, flat, lengths, terminated, told)


def _joined(source: str, name: str, parts: list[Array]) -> Array:
    for number, part in enumerate(parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise UserError(
                f"{source}: {name} of episode {number} have shape {part.shape[1:]}, those of the first "
                f"{parts[0].shape[1:]}: mend it"
            )
    return np.concatenate(parts)


def _rows(
    source: str,
    observations: Array,
    actions: Array,
    rewards: Array,
    lengths: NDArray[np.int64],
    terminated: NDArray[np.bool_] | None,
    told: bool,
) -> Rows:
    """`told`: whether the file could tell ends from cuts; it does if any episode was cut."""
    totals = np.add.reduceat(rewards, np.cumsum(lengths) - lengths)
    may_be_cuts = not told or (terminated is not None and bool(terminated.all()))
    states, acts = counted(source, "s", observations), counted(source, "a", actions)
    return Rows(source, lengths, states, acts, totals, None, terminated, False, may_be_cuts)


def counted(source: str, letter: str, values: Array) -> dict[str, Column]:
    """Columns s0, s1, ... of vectors [N, D]; whole numbers [N] or [N, 1] are categories."""
    values = np.asarray(values)
    if values.ndim > 2:
        raise UserError(
            f"{source}: vectors are needed, and these have shape {values.shape[1:]}: flatten them"
        )
    columns = values.reshape(len(values), -1)
    whole = np.issubdtype(values.dtype, np.integer) and columns.shape[1] == 1
    as_column: Callable[[Array], Column] = _texts if whole else (lambda column: column.astype(np.float64))
    return {f"{letter}{place}": as_column(columns[:, place]) for place in range(columns.shape[1])}


def _texts(column: Array) -> Column:
    return np.array([str(value) for value in column.tolist()], object)
