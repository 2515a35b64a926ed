"""Arrays from an .npz file that somebody else made. What an array is stands in its first bytes, so that
nothing is unpacked before it is known to be wanted, of numbers, and as large as it says."""

import ast
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.core.files import ARRAY_HEAD, COMPRESSED, UNPACKED, memory

REAL = "biuf"  # kinds of NumPy types: truth values and real numbers
TEXT = "U"

_START = b"\x93NUMPY"


class _Head(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bytes: int


def read_arrays(
    path: Path, numbers: Iterable[str], texts: Iterable[str], others: bool = False
) -> dict[str, NDArray[Any]]:
    """The arrays of these names, as far as the file has them: real numbers or texts. UserError where they are
    anything else. With `others` all that the file has besides, if these are numbers or texts."""
    wanted = {**dict.fromkeys(numbers, REAL), **dict.fromkeys(texts, TEXT)}
    if not path.exists():
        raise UserError(f"no file {path}")
    if not path.is_file() or not is_zipfile(path):
        raise UserError(f"{path} is no .npz file: write it with numpy.savez, as plain arrays")
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if others:
                wanted = dict.fromkeys(members, REAL + TEXT) | wanted
            names = [name for name in wanted if name in members]
            for name in names:  # all of them, before the first is unpacked
                _check(path, name, _read_head(archive, members[name]), members[name], wanted[name])
            chosen = [members[name] for name in names]
            check_unpacked(
                path, sum(each.file_size for each in chosen), sum(each.compress_size for each in chosen)
            )
            return {name: _unpacked(archive, members[name]) for name in names}
    except UserError:
        raise
    except (BadZipFile, zlib.error, ValueError, TypeError, EOFError, SyntaxError, OSError) as error:
        raise UserError(f"{path} is damaged ({_short(error)}): write it again with numpy.savez") from error
    except (NotImplementedError, RuntimeError, MemoryError) as error:  # encrypted, or packed in an odd way
        raise UserError(f"{path} cannot be read ({_short(error)}): write it with numpy.savez") from error


def _read_head(archive: ZipFile, member: ZipInfo) -> _Head:
    with archive.open(member) as file:
        if file.read(len(_START)) != _START:
            raise ValueError(f"{member.filename[:40]} is no array")
        long = file.read(2)[:1] > b"\x01"
        length = int.from_bytes(file.read(4 if long else 2), "little")
        if length > ARRAY_HEAD:
            raise ValueError(f"{member.filename[:40]} has too long a head")
        return _parsed(file.read(length), member)


def _parsed(text: bytes, member: ZipInfo) -> _Head:
    head: Any = ast.literal_eval(text.decode("latin1").strip())
    if not isinstance(head, dict) or set(head) != {"descr", "fortran_order", "shape"}:
        raise ValueError(f"{member.filename[:40]} has an odd head")
    shape = head["shape"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{member.filename[:40]} has an odd shape")
    # A list describes a table of several columns, which is no array of numbers.
    dtype = np.dtype(head["descr"] if isinstance(head["descr"], str) else "V")
    size = dtype.itemsize
    for each in shape:
        size *= each
    return _Head(dtype, shape, size)


def _check(path: Path, name: str, head: _Head, member: ZipInfo, kinds: str) -> None:
    if head.dtype.kind not in kinds:
        what = {TEXT: "texts", REAL: "real numbers"}.get(kinds, "numbers or texts")
        raise UserError(f"{path}: {name} holds {head.dtype.name}, not {what}: convert it first")
    if head.bytes > member.file_size:
        raise UserError(f"{path}: {name} says it has {_size(head.bytes)}, but there are {member.file_size:,}")


def check_unpacked(path: Path, unpacked: int, packed: int) -> None:
    """Complain of arrays that memory could not hold, or that are a trap: all of a file's together."""
    if unpacked > memory():
        raise UserError(f"{path} has arrays of {_size(unpacked)}, more than this machine's memory")
    if unpacked > max(UNPACKED, COMPRESSED * packed):
        raise UserError(
            f"{path} would unpack to {_size(unpacked)} from {_size(packed)}: if that is right, write it "
            "without compression"
        )


def _unpacked(archive: ZipFile, member: ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        stream: IO[bytes] = file
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count:,} bytes"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
