"""What goes to a terminal: names, headers and reasons are anybody's, and are only ever shown."""

import errno
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # typing errors and help do without it
    from rich.console import Console


def inert(text: str) -> str:
    """A text as one line that a terminal only shows: what would move its cursor, colour it or turn its
    direction is written out, as \\x1b."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def all_inert(data: Any) -> Any:
    """Plain data with all of its texts inert."""
    if isinstance(data, str):
        return inert(data)
    if isinstance(data, Mapping):
        return {all_inert(key): all_inert(value) for key, value in data.items()}
    return [all_inert(each) for each in data] if isinstance(data, list | tuple) else data


def say(text: str) -> None:
    """A line on stderr, unless that was closed before the start, or its terminal since."""
    if sys.stderr is None:
        return
    try:
        print(inert(text), file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def console(stderr: bool = False, width: int | None = None) -> "Console":
    """Where tables go. Brackets in a text are no markup, and words between colons no pictures."""
    from rich.console import Console

    class Terminal(Console):
        """Rich would end the process with code 1 when the reader leaves; here `main` decides."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    found = Terminal(stderr=stderr, markup=False, emoji=False, soft_wrap=width is not None, width=width)
    found.width = max(20, found.width)  # tables cannot be drawn in fewer characters
    return found
