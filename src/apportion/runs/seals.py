"""Checksums inside the files that they guard, so that damage shows when a file is read.

They guard against accidents, not against people. What older versions wrote has none and is taken as it is.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
