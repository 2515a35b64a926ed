"""Files that are whole or absent: written beside their place, synced to disk, then renamed into it.

All of them carry one kind of checksum, in JSON: a JSON file and a line of metrics that of their own content,
a file of arrays that of its arrays, beside a note on them. It guards against accidents, not against people.
"""

import json
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from apportion.core import files
from apportion.core.config import UserError, one_line, parse_json

Arrays = dict[str, NDArray[Any]]  # name → array

CHECKSUM = "checksum"
_HEADER = "header"  # the only entry of a safetensors file's metadata
_STEP = re.compile(r"step_(\d{12})\.safetensors")

# --- JSON


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with a checksum of all of it, as the last key."""
    return {**data, CHECKSUM: _checksum(data)}


def unsealed(data: Any) -> dict[str, Any]:
    """The data without its checksum; ValueError where that is another's."""
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    content = {key: value for key, value in data.items() if key != CHECKSUM}
    if data.get(CHECKSUM, _checksum(content)) != _checksum(content):
        raise ValueError("its checksum differs")
    return content


def _checksum(data: Mapping[str, Any]) -> str:
    """Of the content: spaces and the order of keys do not matter."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces a JSON file in one step, with a checksum in it. NaN and infinities become null."""
    text = json.dumps(sealed(plain(data)), indent=2, allow_nan=False)
    files.write_bytes(path, f"{text}\n".encode())


def read_json(path: Path, edited: bool = False) -> dict[str, Any]:
    """The object in a JSON file, without its checksum. People may have `edited` it: then that may differ."""
    try:
        data = parse_json(files.read_bytes(path))
        if edited and isinstance(data, dict):
            data.pop(CHECKSUM, None)
        return unsealed(data)
    except OSError as error:
        reason = f"cannot be read ({one_line(error)})"
    except ValueError as error:
        reason = f"is damaged ({one_line(error)})"
    raise UserError(f"{path} {reason}: restore it from a copy, or start a new run")


def plain(value: Any) -> Any:
    """Data as JSON can hold it: arrays become lists, NaN and infinities None."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"cannot write {type(value).__name__} as JSON")
    return plain(array.tolist())


# --- Arrays, with a note beside them


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], note: Mapping[str, Any] = {}) -> None:
    """Replaces a safetensors file in one step."""
    header = sealed({"file": path.name, "arrays": _sum_of_arrays(arrays), "note": plain(note)})
    files.replace(path, lambda temp: _save(temp, arrays, {_HEADER: json.dumps(header, allow_nan=False)}))


def read_arrays(path: Path, most: int = files.TENSOR_BYTES) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the note of a file of so many bytes at the most; ValueError where they are not as they
    were written."""
    with _opened(path, most) as (file, header):
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        if header["arrays"] != _sum_of_arrays(arrays):
            raise ValueError("its checksum differs")
        return arrays, header["note"]


def read_note(path: Path) -> dict[str, Any]:
    """The note alone; the arrays are not looked at."""
    with _opened(path, files.memory()) as (_, header):
        return dict(header["note"])


@contextmanager
def _opened(path: Path, most: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A file of arrays, and what stands beside them."""
    try:
        with files.opened(path, most), safe_open(path, framework="np") as file:
            header = unsealed(parse_json((file.metadata() or {}).get(_HEADER, "")))
            if header.get("file") != path.name or not isinstance(header.get("note"), dict):
                raise ValueError("its content is that of another file")
            yield file, header
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        raise ValueError("its content is no array") from error


def _sum_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of names, types, shapes and numbers."""
    crc = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        if not array.dtype.isnative:  # safetensors brings them back in the machine's own order
            array = array.astype(array.dtype.newbyteorder("="))
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape} ".encode(), crc)
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _save(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """Writes a safetensors file in place; a full disk raises OSError, as it does for any other file."""
    mode = path.stat().st_mode  # safetensors makes files that only their owner can read
    try:
        # safetensors copies memory as it lies, so a transposed view would come back scrambled.
        # (np.ascontiguousarray would turn 0-d arrays into 1-d ones.)
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path, metadata)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
    path.chmod(mode)


# --- Files of arrays for moments of a training


def place(folder: Path, step: int) -> Path:
    """The file of one moment."""
    return folder / f"step_{step:012d}.safetensors"


def steps(folder: Path) -> list[int]:
    """Steps that have a file, oldest first; whether it is whole shows when it is read."""
    matches = [_STEP.fullmatch(path.name) for path in folder.glob("step_*")]
    return sorted(int(match[1]) for match in matches if match)


def drop_after(folder: Path, step: int) -> None:
    """Removes the files of later steps, and what a crash left half written."""
    for later in [each for each in steps(folder) if each > step]:
        place(folder, later).unlink()
    files.clear(folder)
