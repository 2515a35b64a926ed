"""Messages between the trainer and its worker processes: a JSON head and a safetensors body, length-prefixed.

The same two formats as in checkpoints, so that nothing here can execute code on arrival.
"""

import json
import mmap
import os
import struct
from collections.abc import Mapping, MutableSequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from apportion.core.children import memory_file
from apportion.core.files import memory

Arrays = dict[str, NDArray[Any]]

_LENGTHS = struct.Struct("<QQ")
_LONGEST_HEAD = 2**30  # bytes


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
    """Read one message; EOFError when the other side has gone, ValueError where this is none of ours."""
    text_length, body_length = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    if text_length > _LONGEST_HEAD or body_length > memory():
        raise ValueError("no message begins like that")
    text, body = _exactly(stream, text_length), _exactly(stream, body_length)
    try:
        head = json.loads(text)
        arrays = load(body) if body else {}
    except (SafetensorError, RecursionError, TypeError, KeyError) as error:
        raise ValueError("no message is like that") from error
    if not isinstance(head, dict):
        raise ValueError("no message says that")
    return Message(head, arrays)


def strip_prefix(arrays: Arrays, prefix: str) -> Arrays:
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


# --- A worker's pulse: it shows that it is alive, and what it is doing


Pulse = MutableSequence[int]  # [BEATS, LANE, EPISODE]: what a worker does, readable though it hangs

BEATS, LANE, EPISODE = range(3)
NOBODY = -1  # the lane while none is being served

_BYTES = 3 * 8


def no_pulse() -> Pulse:
    """For lanes that nobody watches."""
    return [0, NOBODY, 0]


def pulse_file() -> int:
    """A descriptor of memory for a pulse; whoever made it closes it."""
    descriptor = memory_file("pulse")
    os.write(descriptor, bytes(_BYTES))  # written, not only reserved: a full disk complains here and now
    return descriptor


def shared_pulse(descriptor: int) -> Pulse:
    """The memory behind a descriptor."""
    return memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")  # type: ignore[return-value]
