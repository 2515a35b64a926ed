"""Episodes as d3rlpy writes them: its `dump` (HDF5, arrays of each episode), and the flat arrays of its
MDPDataset, which D4RL has too: observations [N, S], actions [N, A], rewards [N], terminals [N].

Neither has the observation after an episode's last step. An episode's outcome is the sum of its rewards.
Which ended by themselves is known where a file tells such ends from others: where all are `terminals`, these
may mean either. For a run that knows from other data what they mean, they mean that.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check, extra
from apportion.data.columns import Choice, Columns
from apportion.data.rows import CREDIT, PAID, REAL, Column, Earned, Rows, check_room, check_unpacked, in_short

FLAT = ("observations", "actions", "rewards", "terminals")
_PARTS = ("observations", "actions", "rewards")
_COUNTS = ("num_episodes", "total_size")
OTHER_ENDS = ("timeouts", "episode_terminals")  # beside terminals: of episodes that were cut, or of all

Array = NDArray[Any]


def h5py() -> Any:
    return extra("h5py", "HDF5 files are read with h5py", "minari")


def read(data: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """The steps of an HDF5 file in either layout."""
    path = Path(data)
    check(path.is_file(), f"no file {path}")
    package = h5py()
    try:
        with package.File(path, "r") as file:
            names = [name for name in (*FLAT, *OTHER_ENDS) if name in file]
            flat = is_flat(file)
            arrays = _arrays(path, file, names if flat else _dumped_names(path, file))
            return flat_rows(data, arrays) if flat else _dumped_rows(data, arrays)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, MemoryError, AttributeError) as error:
        raise UserError(f"{path} cannot be read as HDF5 ({in_short(error)}): write it again") from error


def _arrays(path: Path, file: Any, names: list[str]) -> dict[str, Array]:
    """Arrays of real numbers that stand in the file itself, checked before the first is unpacked."""
    package, found = h5py(), {}
    for name in names:
        here = isinstance(file.get(name, getlink=True), package.HardLink)
        check(here, f"{path}: {name} is a link to somewhere else: write it as an array")
        each = found[name] = file[name]
        plain = isinstance(each, package.Dataset) and not each.is_virtual and not each.external
        check(plain, f"{path}: {name} is no array of this file: write it as one")
        real = each.dtype.kind in REAL
        check(real, f"{path}: {name} holds {each.dtype}, not real numbers: convert it first")
    check_room(str(path), sum(each.size for each in found.values()))
    stored = sum(each.id.get_storage_size() for each in found.values())
    check_unpacked(str(path), sum(each.nbytes for each in found.values()), stored)
    return {name: np.asarray(each[()]) for name, each in found.items()}


def is_flat(names: Any) -> bool:
    """Whether a file has the flat arrays."""
    return all(name in names for name in FLAT)


def flat_rows(source: str, arrays: Mapping[str, Array]) -> Rows:
    """Steps from flat arrays."""
    rewards = np.asarray(arrays["rewards"], np.float64).reshape(-1)
    count = len(rewards)
    check(count > 0, f"{source} holds no step")
    flags = {name: arrays[name].reshape(-1) for name in ("terminals", *OTHER_ENDS) if name in arrays}
    parts = {name: np.atleast_1d(arrays[name]) for name in ("observations", "actions")}
    for name, array in (parts | flags).items():
        check(len(array) == count, f"{source}: {name} has {len(array)} rows, but rewards {count}: mend it")
    # An episode goes up to and with each end, the last one to where the file ends.
    ends = np.any([array.astype(np.bool_) for array in flags.values()], axis=0)
    ends[-1] = True
    lengths = np.diff(np.flatnonzero(ends), prepend=-1)
    terminated = flags["terminals"].astype(np.bool_)[ends]
    return _rows(
        source, parts["observations"], parts["actions"], rewards, lengths, terminated, len(flags) > 1
    )


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
    check(not missing, f"{path} has no {(missing or [''])[0]!r}: {says}")
    return names + [name for name in (f"terminated_{number}" for number in range(count)) if name in file]


def _dumped_rows(source: str, file: Mapping[str, Array]) -> Rows:
    count = sum(name.startswith("rewards_") for name in file)
    observations, actions, rewards = ([file[f"{name}_{n}"] for n in range(count)] for name in _PARTS)
    lengths = np.array([len(each) for each in rewards], np.int64)
    for number, (seen, done, length) in enumerate(zip(observations, actions, lengths, strict=True)):
        shapes = f"{len(seen)} observations, {len(done)} actions and {length} rewards"
        same = len(seen) == len(done) == length > 0
        check(same, f"{source}: episode {number} has {shapes}: give one of each for every step")
    seen_at, done_at = _joined(source, "observations", observations), _joined(source, "actions", actions)
    flat = np.concatenate([np.asarray(each, np.float64).reshape(-1) for each in rewards])
    ended = [f"terminated_{number}" for number in range(count)]
    told = all(name in file for name in ended)
    terminated = np.array([bool(file[name]) for name in ended]) if told else None
    return _rows(source, seen_at, done_at, flat, lengths, terminated, told)


def _joined(source: str, name: str, parts: list[Array]) -> Array:
    first = parts[0].shape[1:]
    for number, part in enumerate(parts):
        shapes = f"shape {part.shape[1:]}, those of the first {first}"
        check(part.shape[1:] == first, f"{source}: {name} of episode {number} have {shapes}: mend it")
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
    shape = f"vectors are needed, and these have shape {values.shape[1:]}"
    check(values.ndim <= 2, f"{source}: {shape}: flatten them")
    columns = values.reshape(len(values), -1).T
    if np.issubdtype(values.dtype, np.integer) and len(columns) == 1:
        return {f"{letter}0": np.array([str(value) for value in columns[0].tolist()], object)}
    return {f"{letter}{place}": column.astype(np.float64) for place, column in enumerate(columns)}


# --- The same with what steps earned


def write(data: str, target: Path, earned: Earned) -> None:
    """A copy of an HDF5 file with more arrays, of its own layout."""
    shutil.copyfile(data, target)
    with h5py().File(target, "r+") as file:
        names = {f"{CREDIT}_names": list(earned.credit)} if earned.credit else {}
        for name, values in {**relabelled(file, earned), **names}.items():
            free = name.replace("/", "-")  # which would make a group
            if free in file:
                del file[free]  # rewards, which may hold whole numbers only
            file[free] = values


def relabelled(arrays: Mapping[str, Any], earned: Earned) -> dict[str, Array]:
    """Flat arrays, or those of each episode: learned rewards in the place of those paid, which stay."""
    rows = earned.rows
    flat = is_flat(arrays)
    parts = [""] if flat else [f"_{number}" for number in range(len(rows.lengths))]
    found: dict[str, Array] = {}
    for name, values in {"rewards": earned.reward, **earned.arrays()}.items():
        for part, own in zip(parts, [values] if flat else rows.split(values), strict=True):
            found[f"{name}{part}"] = own
    for part in parts:
        paid = np.asarray(arrays[f"rewards{part}"])
        # In the shape of what was paid, and in its precision, unless that knows whole numbers only.
        kind = paid.dtype if np.issubdtype(paid.dtype, np.floating) else np.float32
        found[f"rewards{part}"] = found[f"rewards{part}"].reshape(paid.shape).astype(kind)
        found[f"{PAID}s{part}"] = paid
    return found
