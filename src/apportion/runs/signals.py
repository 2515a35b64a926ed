"""Stopping politely: one SIGINT or SIGTERM asks the loop to save and end, another Ctrl-C ends it at once."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class StopRequest:
    """Listens for signals inside a `with` block. Outside the main thread it hears nothing.

    `hurry` is called at the first signal, `kill` at the Ctrl-C after it.
    """

    def __init__(
        self, hurry: Callable[[], None] = lambda: None, kill: Callable[[], None] = lambda: None
    ) -> None:
        self._hurry = hurry
        self._kill = kill
        self.signal: int | None = None  # the number of the signal that asked us to stop
        self._killed = False
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                self._previous[each] = signal.signal(each, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, handler in self._previous.items():
            # None stands for a handler that was not set by Python: it cannot be given back.
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()
        if self._killed and isinstance(error, Exception):  # of what was killed under it
            raise KeyboardInterrupt from error

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            self._killed = True
            self._kill()
            raise KeyboardInterrupt
        if not self.requested:
            self.signal = number
            self._hurry()
