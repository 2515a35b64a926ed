"""Checkpoints: a pytree of arrays as safetensors, beside JSON. Never half written, checked when read.

A checkpoint is a folder `step_000000020000` with state.safetensors and meta.json. It is written under a
hidden name, synced, and renamed, so a crash at any moment leaves the earlier ones as they were. meta.json
holds the checksums of all other files, and its own.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from apportion.core.config import UserError, from_dict
from apportion.core.files import LOG_BYTES, memory, read_bytes, sync
from apportion.envs.messages import strip_prefix
from apportion.runs.atomic import Arrays, checksum, json_text, load_tensors, parse_sealed, save_tensors
from apportion.runs.schemas import Header

FORMAT = 2
TENSORS = "state.safetensors"
META = "meta.json"

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


class Stored(NamedTuple):
    """A checkpoint as it lies on the disk, its checksums verified."""

    step: int
    tensors: Arrays
    meta: dict[str, Any]
    raw: Arrays
    keys: dict[str, str]  # leaves that are random keys, and their kind
    files: dict[str, bytes]  # whatever lies beside the arrays


def save(
    folder: Path,
    step: int,
    tree: Any,
    meta: dict[str, Any],
    keep: int,
    raw: Arrays | None = None,
    files: dict[str, bytes] | None = None,
) -> Path:
    """Writes one checkpoint, then removes all but the newest `keep`. `raw` takes arrays of any size, `files`
    whatever else belongs to this moment."""
    if keep < 1:
        raise UserError(f"keep={keep} checkpoints must be at least 1: raise it")
    folder.mkdir(parents=True, exist_ok=True)
    _clean(folder)
    final = folder / _name(step)
    temp = folder / f".tmp_{os.getpid()}_{final.name}"
    try:
        temp.mkdir()
        _write(temp, step, tree, meta, raw or {}, files or {})
        _publish(temp, final)
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        _recover(folder)
        raise
    _recover(folder)
    for old in steps(folder)[:-keep]:
        _discard(folder / _name(old))
    return final


def load(folder: Path, template: Any, at_most: int | None = None) -> Loaded:
    """Reads the newest valid checkpoint into the template's structure; a part of the saved tree will do.

    The template's leaves are arrays or jax.ShapeDtypeStruct. Checkpoints after step `at_most` do not count.
    """

    (stored, tree), skipped = newest(folder, lambda stored: (stored, restore(template, stored)), at_most)
    return Loaded(stored.step, tree, stored.meta, stored.raw, skipped)


def load_arrays(folder: Path) -> Loaded:
    """Reads the newest valid checkpoint without a template: its tree is a dict, dotted path → array."""
    stored, skipped = newest(folder, lambda stored: stored)
    return Loaded(stored.step, stored.tensors, stored.meta, stored.raw, skipped)


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, oldest first; whether they are valid shows when they are read."""
    return sorted(step for step, path in _candidates(folder) if _COMPLETE.fullmatch(path.name))


def newest_meta(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The meta of the newest checkpoint that has a readable one, and a line for each that has not; the arrays
    are not looked at."""
    skipped: list[str] = []
    for step, path in _candidates(folder):
        try:
            return _read_header(step, path)["meta"], skipped
        except (UserError, OSError) as error:
            skipped.append(_skipped(path, error))
    return None, skipped


def set_aside(folder: Path, after: int) -> list[str]:
    """Renames checkpoints of later steps, which could not be used, so that a resumed run does not replace
    them; a line for each says where it is."""
    notes = []
    for step in [each for each in steps(folder) if each > after]:
        path = folder / _name(step)
        aside, number = folder / f"damaged_{path.name}", 1
        while aside.exists():
            number += 1
            aside = folder / f"damaged_{path.name}_{number}"
        os.rename(path, aside)
        notes.append(f"{path.name} is kept as {aside}: delete it when you do not need it")
    return notes


def drop_after(folder: Path, step: int) -> None:
    """Removes checkpoints of later steps."""
    for later in [each for each in steps(folder) if each > step]:
        _discard(folder / _name(later))


# Writing


def _write(
    temp: Path, step: int, tree: Any, meta: dict[str, Any], raw: Arrays, files: dict[str, bytes]
) -> None:
    tensors, keys = _flatten(tree)
    arrays = {f"tree.{name}": array for name, array in tensors.items()}
    arrays |= {f"raw.{name}": array for name, array in raw.items()}
    save_tensors(temp / TENSORS, arrays)
    for name, content in files.items():
        (temp / name).write_bytes(content)
    names = (TENSORS, *files)
    sums = {name: dict(zip(("bytes", "crc32"), checksum(temp / name), strict=True)) for name in names}
    header = {"format": FORMAT, "step": step, "files": sums, "keys": keys, "meta": meta}
    (temp / META).write_text(json_text(header))
    for path in (*(temp / name for name in names), temp / META, temp):
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


def _discard(path: Path) -> None:
    """Removes a checkpoint; hidden first, so that no reader finds half of one."""
    hidden = path.with_name(f".tmp_{os.getpid()}_old_{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


# Reading


def newest(folder: Path, read: Callable[[Stored], T], at_most: int | None = None) -> tuple[T, list[str]]:
    """What `read` makes of the newest checkpoint that it accepts, and a line for each that is damaged or that
    it refused, with a UserError."""
    skipped: list[str] = []
    for step, path in _candidates(folder):
        if at_most is not None and step > at_most:
            continue
        try:
            return read(_read(step, path)), skipped
        except (UserError, OSError) as error:
            skipped.append(_skipped(path, error))
    if not skipped:
        raise UserError(f"no checkpoint in {folder}: start a new run")
    raise UserError(f"no valid checkpoint in {folder}, start a new run: {'; '.join(skipped)}")


def _skipped(path: Path, error: Exception) -> str:
    return f"checkpoint {path.name} skipped: {' '.join(str(error).split())}"


def _candidates(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of each checkpoint, newest first; one set aside comes after its replacement."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _COMPLETE.fullmatch(path.name) or _SET_ASIDE.fullmatch(path.name)
        if match and not path.is_symlink():
            found.append((int(match[1]), path))
    return sorted(found, key=lambda item: (item[0], item[1].name), reverse=True)


def _read(step: int, path: Path) -> Stored:
    header = _read_header(step, path)
    for name, facts in header["files"].items():
        _verify(path / name, facts["bytes"], facts["crc32"])
    try:
        arrays, _ = load_tensors(path / TENSORS, memory())
    except ValueError as error:
        raise UserError(f"{TENSORS} cannot be read ({error})") from error
    return Stored(
        step,
        tensors=strip_prefix(arrays, "tree."),
        meta=header["meta"],
        raw=strip_prefix(arrays, "raw."),
        keys=header["keys"],
        files={name: read_bytes(path / name, LOG_BYTES) for name in header["files"] if name != TENSORS},
    )


def _read_header(step: int, path: Path) -> Header:
    try:
        data = parse_sealed(read_bytes(path / META), META)
    except FileNotFoundError:
        raise UserError(f"{META} is missing") from None
    if data.get("format") != FORMAT:
        raise UserError(f"its format is {data.get('format')}, this version of apportion reads {FORMAT}")
    header = from_dict(Header, data, f"{META}: ")
    if header["step"] != step:
        raise UserError(f"{META} is of step {header['step']}")
    plain_names = all(re.fullmatch(r"\w[\w.]*", name) for name in header["files"])
    if TENSORS not in header["files"] or not plain_names:
        raise UserError(f"{META} does not list {TENSORS}")
    return header


def _verify(path: Path, size: int, crc: int) -> None:
    try:
        found, sum_found = checksum(path)
    except FileNotFoundError:
        raise UserError(f"{path.name} is missing") from None
    if found != size:
        raise UserError(f"{path.name} has {found} bytes of {size}")
    if sum_found != crc:
        raise UserError(f"{path.name} is damaged (its checksum differs)")


def restore(template: Any, stored: Stored) -> Any:
    """Puts stored leaves into the template's structure, and refuses any of another shape or type."""
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    leaves = [_leaf(_dotted(path), leaf, stored) for path, leaf in wanted]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _leaf(name: str, wanted: Any, stored: Stored) -> Any:
    if name not in stored.tensors:
        raise UserError(f"{name} is missing: another version of apportion wrote it")
    found: Any = stored.tensors[name]
    if name in stored.keys:
        try:
            found = jax.random.wrap_key_data(found, impl=stored.keys[name])
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} is no random key") from error
    if not isinstance(wanted, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        wanted = np.asarray(wanted)
    check_like(name, found, wanted)
    return found


def check_like(name: str, found: Any, wanted: Any) -> None:
    """Refuses an array of another shape or type."""
    if (found.shape, found.dtype.name) != (wanted.shape, wanted.dtype.name):
        raise UserError(
            f"{name} is {found.dtype.name}{list(found.shape)}, "
            f"this program wants {wanted.dtype.name}{list(wanted.shape)}"
        )


# Small things


def _name(step: int) -> str:
    return f"step_{step:012d}"


def _dotted(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but alive
    return True
