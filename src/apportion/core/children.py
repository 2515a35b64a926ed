"""Child processes, which never outlive us; and signals that ask us to stop."""

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, TracebackType
from typing import Any, BinaryIO, ParamSpec, Self, TypeVar, cast

from apportion.core.config import UserError

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last one when a terminal is closed
# Products in a child are small, and the other cores are for the learner and other children.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Linux ends a child with the thread that started it, so that thread has to stay as long as this process.
_starter = ThreadPoolExecutor(1, "apportion-starter")


def start(module: str, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """`python -m module`, told our process and the descriptors that it shares with us, spoken to over its
    standard streams. A plain process, so that user scripts need no `__main__` guard."""
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    return _starter.submit(
        subprocess.Popen,
        # -P: files of the current folder stand for no package.
        [sys.executable, "-P", "-m", module, str(os.getpid()), *map(str, descriptors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The same search path as here, so that a user's module is found; its own process group, so that
        # Ctrl-C reaches only the trainer, which then finishes its iteration and saves.
        env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
        process_group=0,
        pass_fds=descriptors,
    ).result()


@contextlib.contextmanager
def serving(parent: int) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The streams to and from `parent`. This process ends when that does, and not before: whoever stops the
    trainer may signal us too (a batch system does), but the trainer still needs our answers to save."""
    die_with_parent(parent)
    for each in _STOPS:
        # Not SIG_IGN: what an environment starts would inherit that, and could not be asked to end.
        signal.signal(each, lambda *_: None)
        signal.siginterrupt(each, False)
    stdin = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # who asks for input gets none, not our messages
    # A trainer that went does not read our last answer: from Python 3.13 on, leaving with it would complain.
    with stdin, contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as stdout:
        os.dup2(2, 1)  # whatever is printed goes to stderr, not into our messages
        streams = (stdin.fileno(), stdout.fileno())

        def leave_alone() -> None:
            """A copy of this process, as an environment may make, neither hears nor answers the parent."""
            for each in streams:
                os.dup2(nothing, each)
            for each in _STOPS:
                signal.signal(each, signal.SIG_DFL)

        os.register_at_fork(after_in_child=leave_alone)
        yield stdin, stdout


def die_with_parent(parent: int) -> None:
    """Let this process end when `parent` does, whatever it is doing then.

    Linux sees to it, even while an environment holds the interpreter. Elsewhere a thread looks now and then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


# --- A function in a process of its own


P = ParamSpec("P")
T = TypeVar("T")


def apart(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function of some module gives or raises. The module is imported there: it should be light."""
    child = start("apportion.core.children")
    stdin, stdout = cast(BinaryIO, child.stdin), cast(BinaryIO, child.stdout)
    try:
        with contextlib.suppress(BrokenPipeError), stdin:
            pickle.dump((function, arguments, named), stdin, protocol=5)
        with stdout:
            result, error = pickle.load(stdout)
    except (EOFError, pickle.UnpicklingError):
        raise UserError(
            f"the process of {function.__name__} died (exit code {child.wait()}); its output is above. "
            "Without any, memory was probably too short: train fewer lanes at once"
        ) from None
    finally:
        child.kill()
        child.wait()
    if error is not None:
        raise error
    return cast(T, result)


def main() -> None:
    with serving(int(sys.argv[1])) as (stdin, stdout):
        function, arguments, named = pickle.load(stdin)
        result, failure = None, None
        try:
            result = function(*arguments, **named)
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))  # which would not come back with it
            failure = error
        pickle.dump((result, failure), stdout, protocol=5)


# --- One SIGINT, SIGTERM or SIGHUP asks to save and end, another Ctrl-C ends at once


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
            for each in _STOPS:
                if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # as with nohup
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


if __name__ == "__main__":
    main()
