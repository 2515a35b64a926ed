"""A worker's pulse: it shows that it is alive, and what it is doing."""

import mmap
import os
from collections.abc import MutableSequence

from apportion.core.children import memory_file

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
