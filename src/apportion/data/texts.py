"""Free texts as vectors, each one input: by an embedder that comes with the package, or by one's own."""

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.registry import import_name
from apportion.data.rows import Column, Rows, check_room

HASHING = "hashing"  # the embedder that comes with the package
WIDTH = 64  # of its vectors; runs rely on it
_WORD = re.compile(r"\w+")

Embedder = Callable[[list[str]], Any]  # N texts to an array [N, D]


def hashing(texts: list[str]) -> NDArray[np.float32]:
    """Words and pairs of neighbours add 1 or -1 at places that their hashes say (Weinberger et al., 2009):
    Σ_w sign(w) e_place(w), of length 1, or 0 for a text without words."""
    found, known = np.zeros((len(texts), WIDTH), np.float32), dict[str, tuple[int, float]]()
    for row, text in zip(found, texts, strict=True):
        words = _WORD.findall(text.lower())
        for word in chain(words, map(" ".join, pairwise(words))):
            if word not in known:
                digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
                known[word] = (digest // 2 % WIDTH, 1.0 - 2.0 * (digest % 2))
            place, sign = known[word]
            row[place] += sign
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def embedder(name: str) -> Embedder:
    """By its name; module:function is imported."""
    found: Embedder = hashing if name == HASHING else import_name(name, "the embedder")
    return found


def free_texts(rows: Rows, most: int) -> tuple[str, ...]:
    """Columns with more different texts than that."""
    columns: Mapping[str, Column] = {**rows.states, **rows.actions}
    texts = {name: column for name, column in columns.items() if column.dtype == object}
    return tuple(name for name, column in texts.items() if len(set(column.tolist()) - {None}) > most)


def with_vectors(rows: Rows, names: tuple[str, ...], name: str) -> Rows:
    """The same rows with vectors instead of the texts of some columns; a missing text counts as an empty
    one."""
    if not names:
        return rows
    embed, parts = embedder(name), dict(rows.parts)
    changed = {"states": dict[str, Column](), "actions": dict[str, Column]()}
    for part, columns in changed.items():
        for column, values in getattr(rows, part).items():
            if column not in names:
                columns[column] = values
                continue
            vectors = _vectors(rows.source, column, values, embed, name)
            new = {f"{column}[{place}]": vectors[:, place] for place in range(vectors.shape[1])}
            columns |= new
            parts |= dict.fromkeys(new, column)
    return rows._replace(states=changed["states"], actions=changed["actions"], parts=parts)


def _vectors(source: str, column: str, values: Column, embed: Embedder, name: str) -> NDArray[np.float32]:
    """[N, D] of texts [N]; each different one is asked for once."""
    texts, whose = np.unique(np.array([each or "" for each in values], object), return_inverse=True)
    found = np.asarray(embed(texts.tolist()))
    shape = f"{source}: {name} gave {found.dtype} {list(found.shape)} for {len(texts):,} texts of {column!r}"
    numbers = (
        found.ndim == 2 and found.dtype.kind in "iuf" and len(found) == len(texts) and found.shape[1] > 0
    )
    check(numbers, f"{shape}: it must give numbers [{len(texts)}, D]")
    check(bool(np.isfinite(found).all()), f"{source}: {name} gave NaN or infinity for a text of {column!r}")
    check_room(source, len(values) * found.shape[1])
    return found.astype(np.float32)[whose]
