"""Files that are whole or absent: written beside their place, synced to disk, then renamed into it.

Checksums inside them show damage when they are read: they guard against accidents, not against people."""

import json
import math
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from apportion.core import files
from apportion.core.config import UserError, parse_json
from apportion.core.files import replace, write_bytes

CHECKSUM = "checksum"

_DIFFERS = "its checksum differs"


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with a checksum of all of it, as the last key."""
    return {**data, CHECKSUM: _of_data(data)}


def unsealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data without its checksum; ValueError where that is another's."""
    content = {key: value for key, value in data.items() if key != CHECKSUM}
    if data.get(CHECKSUM, _of_data(content)) != _of_data(content):
        raise ValueError(_DIFFERS)
    return content


def seal_of_arrays(arrays: Mapping[str, NDArray[Any]], file: str) -> dict[str, str]:
    """What a safetensors file of this name holds beside its arrays; under another name it is another's."""
    crc = zlib.crc32(file.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape} ".encode(), crc)
        crc = zlib.crc32(array.tobytes(), crc)
    return {CHECKSUM: f"{crc:08x}"}


def check_arrays(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None, file: str) -> None:
    """ValueError where the arrays are not those that the metadata was made for."""
    if metadata is not None and dict(metadata) != seal_of_arrays(arrays, file):
        raise ValueError(_DIFFERS)


def _of_data(data: Mapping[str, Any]) -> str:
    """Of the content: spaces and the order of keys do not matter."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


Arrays = dict[str, NDArray[Any]]  # name → array


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces a JSON file in one step, with a checksum in it. NaN and infinities become null."""
    write_bytes(path, json_text(data).encode())


def json_text(data: Mapping[str, Any]) -> str:
    """An object with its checksum, for people and machines."""
    return json.dumps(sealed(plain(data)), indent=2, allow_nan=False) + "\n"


def read_json(path: Path, edited: bool = False) -> dict[str, Any]:
    """The object in a JSON file, without its checksum. People may have `edited` it: then that may differ."""
    try:
        return parse_sealed(files.read_bytes(path), str(path), edited)
    except (UserError, OSError) as error:
        reason = f"{path} cannot be read ({error.strerror})" if isinstance(error, OSError) else error
        raise UserError(f"{reason}: restore it from a copy, or start a new run") from error


def parse_sealed(content: bytes, name: str, edited: bool = False) -> dict[str, Any]:
    """The object in the text of a file of this name, without its checksum."""
    try:
        data = parse_json(content)
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        return {key: data[key] for key in data if key != CHECKSUM} if edited else unsealed(data)
    except ValueError as error:
        raise UserError(f"{name} is damaged ({' '.join(str(error).split())})") from error


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replaces a safetensors file in one step."""
    replace(path, lambda temp: save_tensors(temp, arrays, seal_of_arrays(arrays, path.name)))


def read_tensors(path: Path) -> Arrays:
    """The arrays of a safetensors file; ValueError where they are not as they were written."""
    arrays, metadata = load_tensors(path, files.TENSOR_BYTES)
    check_arrays(arrays, metadata, path.name)
    return arrays


def load_tensors(path: Path, most: int) -> tuple[Arrays, dict[str, str] | None]:
    """All arrays of a safetensors file of so many bytes at the most, and what it says of them."""
    try:
        with files.opened(path, most), safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            return arrays, file.metadata()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        raise ValueError("its content is no array") from error


def save_tensors(
    path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None
) -> None:
    """Writes a safetensors file in place; a full disk raises OSError, as it does for any other file."""
    path.touch()
    mode = path.stat().st_mode  # safetensors makes files that only their owner can read
    try:
        # safetensors copies memory as it lies, so a transposed view would come back scrambled.
        # (np.ascontiguousarray would turn 0-d arrays into 1-d ones.)
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path, metadata)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from error
    path.chmod(mode)


def checksum(path: Path) -> tuple[int, int]:
    """Size and CRC-32 of a file."""
    size = crc = 0
    with files.opened(path, files.memory()) as file:
        while block := file.read(1 << 20):
            size += len(block)
            crc = zlib.crc32(block, crc)
    return size, crc


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
