"""Writing where there may be no room: what does not fit waits for the next chance, in its order."""

from collections import deque
from collections.abc import Callable

Write = Callable[[], None]


class WaitingLine:
    """Writes one after the other. While the first of them fails, those behind it wait."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.problem: str | None = None  # why something waits
        self._say = say
        self._line: deque[Write] = deque()

    def write(self, *writes: Write) -> None:
        """Do these now, after all that waits, or leave them to wait."""
        self._line.extend(writes)
        self.retry()

    def retry(self) -> None:
        """Do what waits. The first failure is said, and the success after it."""
        waited = self.problem is not None
        while self._line:
            try:
                self._line[0]()
            except OSError as error:
                self.problem = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
                if not waited:
                    self._say(f"{self.problem}: training goes on, what it logs waits for room")
                return
            self._line.popleft()
        self.problem = None
        if waited:
            self._say("there is room again: what waited has been written")
