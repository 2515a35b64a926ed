"""Others who hear of a run's numbers as they are written: a callback, Weights & Biases."""

from collections.abc import Callable, Sequence
from typing import Any

Listener = Callable[[dict[str, Any]], object]  # hears of each line of metrics; False asks for a stop


class Audience:
    """Hears of every line once, when it has been written. What a listener raises is its own: told from inside
    a WaitingLine, an OSError (no connection, say) would pass for want of room, and the line be written again.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.wants_stop = False
        self._listeners = listeners
        self._lines: list[dict[str, Any]] = []  # that nobody has heard of yet

    def note(self, line: dict[str, Any]) -> None:
        """Remember a line that has been written."""
        self._lines.append(line)

    def tell(self) -> None:
        """Let all hear of what has been noted."""
        while self._lines:
            line = self._lines.pop(0)
            for listener in self._listeners:
                if listener(line) is False:
                    self.wants_stop = True
