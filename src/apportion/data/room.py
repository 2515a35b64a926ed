"""Is there room for a file's numbers in memory? Asked before they are read."""

import os
from pathlib import Path

from apportion.core.config import UserError

_COPIES = 4  # of each number at the most: read, encoded, in the replay, on its way there
_BYTES = 8


def check_room(source: str, numbers: int) -> None:
    """Complain of a file whose numbers would not fit."""
    need, free = _COPIES * _BYTES * numbers, free_bytes()
    if need > free:
        raise UserError(
            f"{source} is too large: its {numbers:,} numbers take about {need / 1e9:.1f} GB here, and "
            f"{free / 1e9:.1f} GB are free: name fewer --states, or take a part of the episodes"
        )


def free_bytes() -> int:
    """Memory that programs could still get."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:  # another system
        lines = []
    kilobytes = {words[0]: int(words[1]) for words in lines}
    if "MemAvailable:" in kilobytes:
        return 1024 * (kilobytes["MemAvailable:"] + kilobytes.get("SwapFree:", 0))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
