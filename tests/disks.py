"""Disks without room, for real: the system itself refuses to let files grow; and pipes without a reader."""

import io
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes; Python turns the signal into an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class ReaderGone(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError
