"""Files that only grow."""

import os
from pathlib import Path


def append(path: Path, content: bytes) -> None:
    """Adds all of it or, where there is no room, nothing: the next one must not be glued to half of it.

    The file is opened each time, so that what was added has left the process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        end = os.fstat(descriptor).st_size
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
