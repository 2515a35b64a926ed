"""Who writes into a folder: one process at a time, and the others are told its number."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apportion.core.errors import UserError

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Holds a folder for writing; `what` names it to others. The kernel lets go of the lock if the process
    dies in any way.

    A forked child keeps the lock of its parent alive; spawned ones do not.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _claim(descriptor, what)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether somebody on this machine holds a folder just now."""
    try:
        descriptor = os.open(folder / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _claim(descriptor: int, what: str) -> None:
    """Takes the lock and leaves our process number in it for others to name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 32).decode().strip() or "unknown"
        raise UserError(f"{what} is being written by process {owner}: wait for it, or stop it") from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:  # some network disks have none; better unlocked than unusable
            raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
