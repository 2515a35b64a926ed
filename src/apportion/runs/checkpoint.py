"""Checkpoints: a pytree of arrays as safetensors, beside JSON. Never half written, checked when read.

A checkpoint is a folder `step_000000020000` with state.safetensors and meta.json. It is written under a
hidden name, synced, and renamed, so a crash at any moment leaves the earlier ones as they were.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from apportion.core.errors import UserError
from apportion.envs.wire import under
from apportion.runs.atomic import Arrays, checksum, save_tensors, sync

FORMAT = 1
TENSORS = "state.safetensors"
META = "meta.json"

_FIELDS = {"format", "step", "bytes", "crc32", "keys", "meta"}
_COMPLETE = re.compile(r"step_(\d{12})")
_SET_ASIDE = re.compile(r"\.replaced_step_(\d{12})")  # the old one, while its replacement takes its place
_UNFINISHED = re.compile(r"\.tmp_(\d+)_.*")  # named for the process that writes it

T = TypeVar("T")


class Loaded(NamedTuple):
    """The newest valid checkpoint."""

    step: int
    tree: Any  # the template's structure, with NumPy arrays; random keys are JAX keys again
    meta: dict[str, Any]
    raw: Arrays
    skipped: list[str]  # one line for each newer checkpoint that could not be used


class _DamagedError(Exception):
    """Why a checkpoint cannot be used."""


class _Stored(NamedTuple):
    step: int
    tensors: Arrays
    meta: dict[str, Any]
    raw: Arrays
    keys: dict[str, str]  # leaves that are random keys, and their kind


def save(
    folder: Path, step: int, tree: Any, meta: dict[str, Any], keep: int, raw: Arrays | None = None
) -> Path:
    """Writes one checkpoint, then removes all but the newest `keep`. `raw` takes arrays of any size.

    Checkpoints of later steps go too: a resumed run passed them over because they are damaged.
    """
    if keep < 1:
        raise UserError(f"keep={keep} checkpoints must be at least 1: raise it")
    folder.mkdir(parents=True, exist_ok=True)
    _clean(folder)
    final = folder / _name(step)
    temp = folder / f".tmp_{os.getpid()}_{final.name}"
    try:
        temp.mkdir()
        _write(temp, step, tree, meta, raw or {})
        _publish(temp, final)
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        _recover(folder)
        raise
    _recover(folder)
    _prune(folder, step, keep)
    return final


def load(folder: Path, template: Any, at_most: int | None = None) -> Loaded:
    """Reads the newest valid checkpoint into the template's structure; a part of the saved tree will do.

    The template's leaves are arrays or jax.ShapeDtypeStruct. Checkpoints after step `at_most` do not count.
    """

    def read(step: int, path: Path) -> tuple[_Stored, Any]:
        stored = _read(step, path)
        return stored, _restore(template, stored)

    (stored, tree), skipped = _newest(folder, read, at_most)
    return Loaded(stored.step, tree, stored.meta, stored.raw, skipped)


def load_arrays(folder: Path) -> Loaded:
    """Reads the newest valid checkpoint without a template: its tree is a dict, dotted path → array."""
    stored, skipped = _newest(folder, _read)
    return Loaded(stored.step, stored.tensors, stored.meta, stored.raw, skipped)


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, oldest first; whether they are valid shows when they are read."""
    return sorted(step for step, path in _candidates(folder) if _COMPLETE.fullmatch(path.name))


def newest_meta(folder: Path) -> dict[str, Any] | None:
    """The meta of the newest checkpoint that has a readable one; the arrays are not looked at."""
    for step, path in _candidates(folder):
        with contextlib.suppress(_DamagedError, OSError):
            meta: dict[str, Any] = _read_header(step, path)["meta"]
            return meta
    return None


def drop_after(folder: Path, step: int) -> None:
    """Removes checkpoints of later steps."""
    for later in [each for each in steps(folder) if each > step]:
        _discard(folder / _name(later))


# Writing


def _write(temp: Path, step: int, tree: Any, meta: dict[str, Any], raw: Arrays) -> None:
    tensors, keys = _flatten(tree)
    arrays = {f"tree.{name}": array for name, array in tensors.items()}
    arrays |= {f"raw.{name}": array for name, array in raw.items()}
    save_tensors(temp / TENSORS, arrays)
    size, crc = checksum(temp / TENSORS)
    header = {"format": FORMAT, "step": step, "bytes": size, "crc32": crc, "keys": keys, "meta": meta}
    # Python's dialect of JSON: a best return of -Infinity must come back as it was.
    (temp / META).write_text(json.dumps(header, indent=2, default=_number) + "\n")
    for path in (temp / TENSORS, temp / META, temp):
        sync(path)


def _flatten(tree: Any) -> tuple[Arrays, dict[str, str]]:
    """Leaves by dotted path, on the host, and the kinds of those that are random keys."""
    named = [(_dotted(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in named if _is_key(leaf)}
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for _, leaf in named]
    arrays: Arrays = {}
    for (name, leaf), array in zip(named, jax.device_get(leaves), strict=True):
        if name in arrays:
            raise ValueError(f"two leaves are named {name!r}: rename one of the dictionary keys")
        arrays[name] = np.asarray(array)
        if arrays[name].dtype.kind in "OUSMm":
            raise TypeError(f"leaf {name!r} is a {type(leaf).__name__}: checkpoints hold arrays of numbers")
    return arrays, keys


def _publish(temp: Path, final: Path) -> None:
    """Gives a finished checkpoint its name. A folder cannot replace another, so the old one steps aside."""
    if final.exists():
        os.rename(final, final.with_name(f".replaced_{final.name}"))
    os.rename(temp, final)
    sync(final.parent)


def _recover(folder: Path) -> None:
    """Ends an interrupted replacement: the old checkpoint goes if the new one is there, else returns."""
    for aside in folder.glob(".replaced_step_*"):
        final = folder / aside.name.removeprefix(".replaced_")
        if final.exists():
            _discard(aside)
        else:
            os.rename(aside, final)


def _clean(folder: Path) -> None:
    """Removes what writers that died left behind."""
    _recover(folder)
    for path in folder.glob(".tmp_*"):
        match = _UNFINISHED.fullmatch(path.name)
        # A process writes one checkpoint at a time, so one of our own number is a dead namesake's.
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _prune(folder: Path, step: int, keep: int) -> None:
    present = steps(folder)
    later = [other for other in present if other > step]
    older = [other for other in present if other <= step][:-keep]
    for other in later + older:
        _discard(folder / _name(other))


def _discard(path: Path) -> None:
    """Removes a checkpoint; hidden first, so that no reader finds half of one."""
    hidden = path.with_name(f".tmp_{os.getpid()}_old_{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


# Reading


def _newest(folder: Path, read: Callable[[int, Path], T], at_most: int | None = None) -> tuple[T, list[str]]:
    """The newest checkpoint that `read` accepts, and a line for each that it refused."""
    skipped: list[str] = []
    for step, path in _candidates(folder):
        if at_most is not None and step > at_most:
            continue
        try:
            return read(step, path), skipped
        except (_DamagedError, OSError) as error:
            skipped.append(f"checkpoint {path.name} skipped: {error}")
    if not skipped:
        raise UserError(f"no checkpoint in {folder}: start a new run")
    raise UserError(f"no valid checkpoint in {folder}, start a new run: {'; '.join(skipped)}")


def _candidates(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of each checkpoint, newest first; one set aside comes after its replacement."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _COMPLETE.fullmatch(path.name) or _SET_ASIDE.fullmatch(path.name)
        if match:
            found.append((int(match[1]), path))
    return sorted(found, key=lambda item: (item[0], item[1].name), reverse=True)


def _read(step: int, path: Path) -> _Stored:
    header = _read_header(step, path)
    _verify(path / TENSORS, header)
    try:
        arrays = load_file(path / TENSORS)
    except SafetensorError as error:
        raise _DamagedError(f"{TENSORS} cannot be read ({error})") from error
    return _Stored(
        step,
        tensors=under(arrays, "tree."),
        meta=header["meta"],
        raw=under(arrays, "raw."),
        keys=header["keys"],
    )


def _read_header(step: int, path: Path) -> dict[str, Any]:
    try:
        header = json.loads((path / META).read_bytes())
    except FileNotFoundError as error:
        raise _DamagedError(f"{META} is missing") from error
    except ValueError as error:
        raise _DamagedError(f"{META} is not JSON") from error
    if not isinstance(header, dict) or not set(header) >= _FIELDS:
        raise _DamagedError(f"{META} is incomplete")
    if header["format"] != FORMAT:
        raise _DamagedError(f"its format is {header['format']}, this version of apportion reads {FORMAT}")
    if header["step"] != step:
        raise _DamagedError(f"{META} is of step {header['step']}")
    return header


def _verify(path: Path, header: dict[str, Any]) -> None:
    if not path.is_file():
        raise _DamagedError(f"{path.name} is missing")
    size, crc = checksum(path)
    if size != header["bytes"]:
        raise _DamagedError(f"{path.name} has {size} bytes of {header['bytes']}")
    if crc != header["crc32"]:
        raise _DamagedError(f"{path.name} is damaged (its checksum differs)")


def _restore(template: Any, stored: _Stored) -> Any:
    """Puts stored leaves into the template's structure, and refuses any of another shape or type."""
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    leaves = [_leaf(_dotted(path), leaf, stored) for path, leaf in wanted]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _leaf(name: str, wanted: Any, stored: _Stored) -> Any:
    if name not in stored.tensors:
        raise _DamagedError(f"{name} is missing: another version of apportion wrote it")
    found: Any = stored.tensors[name]
    if name in stored.keys:
        found = jax.random.wrap_key_data(found, impl=stored.keys[name])
    if not isinstance(wanted, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        wanted = np.asarray(wanted)
    if (found.shape, found.dtype.name) != (wanted.shape, wanted.dtype.name):
        raise _DamagedError(
            f"{name} is {found.dtype.name}{list(found.shape)}, "
            f"this program wants {wanted.dtype.name}{list(wanted.shape)}"
        )
    return found


# Small things


def _name(step: int) -> str:
    return f"step_{step:012d}"


def _dotted(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _number(value: NDArray[Any]) -> Any:
    """What json cannot write by itself: NumPy and JAX numbers, and arrays as lists."""
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"checkpoint meta holds a {type(value).__name__}: pass plain data")
    return array.tolist()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but alive
    return True
