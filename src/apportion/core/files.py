"""Files of others: the one way to read them, and the one way to write beside them.

What is read is a regular file, none that a link inside of a run folder points to, and no larger than the
table below allows. What is written appears as a whole, under its name, and through no link.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# How much is read of a file that may be anybody's.
JSON_BYTES = 256 * 2**20  # of a JSON or TOML file
LOG_BYTES = 4 * 2**30  # of a log of metrics
TENSOR_BYTES = 8 * 2**30  # of edges and episodes of a moment; of checkpoints what memory holds
JSON_DEPTH = 32  # of nested lists and objects; what we write has six at the most
LARGEST_WHOLE = 2**63  # whole numbers must be smaller: beyond, arrays cannot hold them
UNPACKED = 64 * 2**20  # bytes of arrays that may be compressed as much as they like;
COMPRESSED = 200  # times, those of more: real data are not, but a trap is

_LEFT_OVER = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes() -> int:
    """Memory that programs could still get."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:  # another system
        lines = []
    kilobytes = {words[0]: int(words[1]) for words in lines}
    if "MemAvailable:" in kilobytes:
        return 1024 * (kilobytes["MemAvailable:"] + kilobytes.get("SwapFree:", 0))
    return memory()


# --- Reading


@contextmanager
def opened(path: Path, most: int, linked: bool = False) -> Iterator[IO[bytes]]:
    """A regular file to read, with so many bytes at the most; behind a link only where those may be `linked`.
    OSError says, in a few words, what it is instead."""
    # Without blocking, or a pipe that nobody writes to would hold us up before we know what it is.
    descriptor = _open(path, os.O_RDONLY | os.O_NONBLOCK, linked)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _refused(path, errno.EINVAL, "it is no regular file")
        if facts.st_size > most:
            raise _refused(path, errno.EFBIG, f"its {facts.st_size:,} bytes are more than {most:,}")
        yield file


def read_bytes(path: Path, most: int = JSON_BYTES, linked: bool = False) -> bytes:
    with opened(path, most, linked) as file:
        return file.read(most)


def _open(path: Path, flags: int, linked: bool = False) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC | (0 if linked else os.O_NOFOLLOW), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and not linked:
            raise _refused(path, errno.ELOOP, "it is a link") from error
        raise


def _refused(path: Path, number: int, reason: str) -> OSError:
    return OSError(number, reason, str(path))


# --- Writing


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file in one step: a reader sees the old content or the new, a crash leaves either."""
    replace(path, lambda temp: temp.write_bytes(content))


def replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Lets `write` fill a file of our own beside its place, and then puts it there in one step. Devices and
    pipes, as /dev/stdout, cannot be replaced."""
    if path.exists() and not path.is_file():
        raise _refused(path, errno.EINVAL, "it is no regular file")
    temp = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    os.close(_open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    try:
        write(temp)
        sync(temp)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync(path.parent)


def clear(folder: Path) -> None:
    """Removes what writers that died left behind: files under names that we give, and nothing else."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _LEFT_OVER.fullmatch(path.name) and not path.is_dir():
            path.unlink()


def append(path: Path, content: bytes) -> None:
    """Adds all of it or, where there is no room, nothing: the next one must not be glued to half of it.

    The file is opened each time, so that what was added has left the process."""
    descriptor = own(path, os.O_WRONLY | os.O_APPEND)
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


def own(path: Path, flags: int) -> int:
    """A descriptor of a regular file of ours to write to, which is made where there is none."""
    descriptor = _open(path, flags | os.O_CREAT | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path, errno.EINVAL, "it is no regular file")
    return descriptor
