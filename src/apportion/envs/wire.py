"""Messages between the trainer and its worker processes: a JSON head and a safetensors body, length-prefixed.

The same two formats as in checkpoints, so that nothing here can execute code on arrival.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

Arrays = dict[str, NDArray[Any]]

_LENGTHS = struct.Struct("<QQ")


class Message(NamedTuple):
    head: dict[str, Any]
    arrays: Arrays


def send(stream: BinaryIO, head: dict[str, Any], arrays: Arrays | None = None) -> None:
    """Write one message and flush it."""
    text = json.dumps(head).encode()
    body = save({k: np.asarray(v, order="C") for k, v in arrays.items()}) if arrays else b""
    stream.write(_LENGTHS.pack(len(text), len(body)))
    stream.write(text)
    stream.write(body)
    stream.flush()


def receive(stream: BinaryIO) -> Message:
    """Read one message; EOFError when the other side has gone."""
    text_length, body_length = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    head = json.loads(_exactly(stream, text_length))
    body = _exactly(stream, body_length)
    return Message(head, load(body) if body else {})


def under(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names start with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def prefixed(groups: Mapping[int, Arrays]) -> Arrays:
    """Arrays of several groups together: those of group i are called `i/...`."""
    return {f"{i}/{name}": array for i, group in groups.items() for name, array in group.items()}


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """A stream without a buffer gives what there is, in several parts."""
    parts: list[bytes] = []
    while size > 0:
        part = stream.read(size)
        if not part:
            raise EOFError("the other side closed the stream")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
