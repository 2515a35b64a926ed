"""A worker's life: it shows that it is alive, and it never outlives the process that started it."""

import ctypes
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import MutableSequence

Pulse = MutableSequence[int]  # [BEATS, LANE, EPISODE]: what a worker does, readable though it hangs

BEATS, LANE, EPISODE = range(3)
NOBODY = -1  # the lane while none is being served

_BYTES = 3 * 8
_SECONDS_BETWEEN_LOOKS = 1.0
_PR_SET_PDEATHSIG = 1


def no_pulse() -> Pulse:
    """For lanes that nobody watches."""
    return [0, NOBODY, 0]


def pulse_file() -> int:
    """A descriptor of memory that two processes can share; whoever made it closes it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("apportion-pulse", 0)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, bytes(_BYTES))  # written, not only reserved: a full disk complains here and now
    return descriptor


def shared_pulse(descriptor: int) -> Pulse:
    """The memory behind a descriptor."""
    return memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")  # type: ignore[return-value]


def die_with_parent(parent: int) -> None:
    """Let this process end when `parent` does, whatever it is doing then.

    Linux sees to it, even while an environment holds the interpreter. Elsewhere a thread looks now and then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    else:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
