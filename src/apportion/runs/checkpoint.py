"""Checkpoints: a pytree of arrays, beside others and a note, in one file `step_000000020000.safetensors`.

It is never half written: a crash at any moment leaves the earlier ones as they were. What is damaged, or does
not fit, is passed over for the one before.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from apportion.core.config import UserError, conform
from apportion.core.files import memory
from apportion.envs.messages import strip_prefix
from apportion.runs import atomic
from apportion.runs.atomic import Arrays, place
from apportion.runs.atomic import steps as steps

FORMAT = 3

T = TypeVar("T")


class Loaded(NamedTuple):
    """A checkpoint whose checksum is right."""

    step: int
    tree: Any  # dotted path → array; or a template's structure, where random keys are JAX keys again
    meta: dict[str, Any]
    raw: Arrays
    keys: dict[str, str]  # leaves that are random keys, and their kind
    skipped: list[str]  # one line for each newer checkpoint that could not be used


def save(
    folder: Path, step: int, tree: Any, meta: dict[str, Any], keep: int, raw: Arrays | None = None
) -> Path:
    """Writes one checkpoint, then removes all but the newest `keep`. `raw` takes arrays of any size."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, keys = _flatten(tree)
    arrays = {f"tree.{name}": array for name, array in tensors.items()}
    arrays |= {f"raw.{name}": array for name, array in (raw or {}).items()}
    path = place(folder, step)
    atomic.write_arrays(path, arrays, {"format": FORMAT, "keys": keys, "meta": meta})
    for old in steps(folder)[:-keep]:
        place(folder, old).unlink()
    return path


def load(folder: Path, template: Any = None) -> Loaded:
    """Reads the newest valid checkpoint into the template's structure; a part of the saved tree will do.

    The template's leaves are arrays or jax.ShapeDtypeStruct. Without one the tree is a dict of arrays.
    """

    def restored(loaded: Loaded) -> Loaded:
        return loaded if template is None else loaded._replace(tree=restore(template, loaded))

    found, skipped = newest(folder, restored)
    return found._replace(skipped=skipped)


def newest(folder: Path, read: Callable[[Loaded], T]) -> tuple[T, list[str]]:
    """What `read` makes of the newest checkpoint that it accepts, and a line for each that is damaged or that
    it refused, with a UserError."""
    skipped: list[str] = []
    for step in reversed(steps(folder)):
        try:
            arrays, note = atomic.read_arrays(place(folder, step), memory())
            raw, keys = strip_prefix(arrays, "raw."), _checked(note)["keys"]
            return read(Loaded(step, strip_prefix(arrays, "tree."), note["meta"], raw, keys, [])), skipped
        except (UserError, OSError, ValueError) as error:
            skipped.append(f"checkpoint {place(folder, step).stem} skipped: {atomic.in_a_line(error)}")
    if not skipped:
        raise UserError(f"no checkpoint in {folder}: start a new run")
    raise UserError(f"no valid checkpoint in {folder}, start a new run: {'; '.join(skipped)}")


def newest_meta(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The meta of the newest checkpoint that has a readable one, and a line for each that has not; the arrays
    are not looked at."""
    skipped: list[str] = []
    for step in reversed(steps(folder)):
        try:
            meta: dict[str, Any] = _checked(atomic.read_note(place(folder, step)))["meta"]
            return meta, skipped
        except (UserError, OSError, ValueError) as error:
            skipped.append(f"checkpoint {place(folder, step).stem} skipped: {atomic.in_a_line(error)}")
    return None, skipped


def set_aside(folder: Path, after: int) -> list[str]:
    """Renames checkpoints of later steps, which could not be used, so that a resumed run does not replace
    them; a line for each says where it is."""
    notes = []
    for path in [place(folder, step) for step in steps(folder) if step > after]:
        aside, number = folder / f"damaged_{path.name}", 1
        while aside.exists():
            number += 1
            aside = folder / f"damaged_{path.stem}_{number}{path.suffix}"
        os.rename(path, aside)
        notes.append(f"{path.name} is kept as {aside}: delete it when you do not need it")
    return notes


def restore(template: Any, loaded: Loaded) -> Any:
    """Puts stored leaves into the template's structure, and refuses any of another shape or type."""
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    leaves = [_leaf(_dotted(path), leaf, loaded) for path, leaf in wanted]
    return jax.tree_util.tree_unflatten(structure, leaves)


def check_like(name: str, found: Any, wanted: Any) -> None:
    """Refuses an array of another shape or type."""
    if (found.shape, found.dtype.name) != (wanted.shape, wanted.dtype.name):
        raise UserError(
            f"{name} is {found.dtype.name}{list(found.shape)}, "
            f"this program wants {wanted.dtype.name}{list(wanted.shape)}"
        )


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


def _leaf(name: str, wanted: Any, loaded: Loaded) -> Any:
    if name not in loaded.tree:
        raise UserError(f"{name} is missing: another version of apportion wrote it")
    found: Any = loaded.tree[name]
    if name in loaded.keys:
        try:
            found = jax.random.wrap_key_data(found, impl=loaded.keys[name])
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} is no random key") from error
    if not isinstance(wanted, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        wanted = np.asarray(wanted)
    check_like(name, found, wanted)
    return found


def _checked(note: dict[str, Any]) -> dict[str, Any]:
    """What stands beside the arrays of a checkpoint, if it is of one."""
    if note.get("format") != FORMAT:
        raise UserError(f"its format is {note.get('format')}, this version of apportion reads {FORMAT}")
    conform(dict[str, str], note.get("keys"), "keys")
    conform(dict[str, Any], note.get("meta"), "meta")
    return note


def _dotted(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
