"""Messages between the supervisor and its workers: a JSON head and a safetensors body, length-prefixed.

The same two formats as in checkpoints, so that nothing here can execute code on arrival. And a worker's
activity: memory that both share, since a worker that hangs answers nothing.
"""

import json
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Mapping, MutableSequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from apportion.core.files import memory

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
    """Read one message; EOFError when the other side has gone, ValueError where this is none of ours."""
    lengths = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    if sum(lengths) > memory():
        raise ValueError("no message begins like that")
    text, body = (_exactly(stream, length) for length in lengths)
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


def prefixed(groups: Mapping[Any, Arrays]) -> Arrays:
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
    return b"".join(parts)


# --- What a worker is doing


Activity = MutableSequence[int]

BEATS, LANE, EPISODE = range(3)  # signs of life so far; the lane being served, and its evaluation episode
NO_LANE = -1


def no_activity() -> Activity:
    """For lanes that nobody watches."""
    return [0, NO_LANE, 0]


def activity_file() -> int:
    """A descriptor of memory for a worker's activity; whoever made it closes it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("apportion-activity")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    # Written, not only reserved: a full disk complains here and now.
    os.write(descriptor, np.array(no_activity(), np.int64).tobytes())
    return descriptor


def shared_activity(descriptor: int) -> Activity:
    """The memory behind a descriptor."""
    return memoryview(mmap.mmap(descriptor, 0)).cast("q")  # type: ignore[return-value]
