"""Workers as the trainer sees them: asked over a pipe, watched while they work, ended together."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import Any, BinaryIO, Protocol

from apportion.core.children import start
from apportion.core.config import UserError
from apportion.envs.make import EnvConfig
from apportion.envs.server import Server
from apportion.envs.wire import (
    BEATS,
    EPISODE,
    LANE,
    NOBODY,
    Arrays,
    Message,
    no_pulse,
    pulse_file,
    receive,
    send,
    shared_pulse,
)

PATIENCE = 5.0  # seconds for a worker to end what it is doing, before it is killed
TO_START = 120.0  # seconds for a new process to come to its environments, however short their own time is
SPARE_NICENESS = 10  # of those that only evaluate, so that the training's own need not wait for them
PIPE_BYTES = 1 << 20  # what Linux gives to anyone; a policy with two layers of 256 takes 300 kB, SimBa's 550


class LostError(Exception):
    """A worker is gone, by itself or because it did not answer; which lane and episode it was at."""

    def __init__(self, reason: str, lane: int | None, episode: int) -> None:
        super().__init__(reason)
        self.lane = lane
        self.episode = episode


class Connection(Protocol):
    """One worker as the trainer sees it. Requests are answered in order."""

    @property
    def descriptor(self) -> int | None:
        """Where its answer will arrive; None: it has answered already."""

    def request(self, head: dict[str, Any], arrays: Arrays) -> None: ...

    def reply(self) -> Message: ...

    def waited(self, seconds: float, at_most: float) -> None:
        """Nobody has answered for so long: LostError after too long without a sign of life."""

    def step_back(self) -> None:
        """Take only the time that other processes leave."""

    def dismiss(self) -> None:
        """Let it come to its end."""

    def end(self, patience: float) -> None:
        """Wait so long for that, then kill it."""

    def kill(self) -> None:
        """At once, with all that its environments started."""


class InlineConnection:
    """A worker inside the calling process: nobody can interrupt it, nor need anybody wait for it."""

    descriptor = None

    def __init__(self, config: EnvConfig, seeds: list[int], head: str) -> None:
        self.server = Server(config, seeds, head, no_pulse())
        self.replies: list[Message] = []

    def request(self, head: dict[str, Any], arrays: Arrays) -> None:
        with contextlib.redirect_stdout(sys.stderr):  # what environments print is no result of ours
            self.replies.append(self.server.answer(Message(head, arrays)))

    def reply(self) -> Message:
        return self.replies.pop(0)

    def waited(self, seconds: float, at_most: float) -> None:
        pass

    def step_back(self) -> None:
        pass

    def dismiss(self) -> None:
        self.server.close()

    def end(self, patience: float) -> None:
        pass

    def kill(self) -> None:
        pass


class ProcessConnection:
    """A worker in a process of its own."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str) -> None:
        pulse = pulse_file()
        try:
            self.process = start("apportion.envs.server", [pulse], subprocess.PIPE)
            self.pulse = shared_pulse(pulse)
        finally:
            os.close(pulse)
        self._stdin: BinaryIO = self.process.stdin  # type: ignore[assignment]
        # Without a buffer, so that it shows from outside whether something has arrived.
        self._stdout: BinaryIO = self.process.stdout.raw  # type: ignore[union-attr]
        self.descriptor = self._stdout.fileno()
        self._quiet = 0.0  # seconds that somebody has waited for a sign of life
        self._beats = 0
        self._ending = threading.Lock()  # who asks and who closes may both find that it is over
        _widen(self._stdin)
        _widen(self._stdout)
        self.request({"config": asdict(config), "seeds": seeds, "head": head}, {})

    def request(self, head: dict[str, Any], arrays: Arrays) -> None:
        self._quiet = 0.0
        with contextlib.suppress(BrokenPipeError):  # it failed earlier: the reason is waiting in reply()
            send(self._stdin, head, arrays)

    def reply(self) -> Message:
        try:
            message = receive(self._stdout)
            if not {"lanes", "error"} & set(message.head):
                raise ValueError("no answer says that")
        except (EOFError, OSError):  # its end of the pipe is closed, or ours
            code = self._exit_code()
            raise self._lost(f"an environment worker died (exit code {code}); its output is above") from None
        except ValueError as error:
            self.kill()
            raise self._lost(f"the environment wrote into its worker's answers ({error})") from None
        if "error" in message.head:
            raise UserError(message.head["error"])
        return message

    def waited(self, seconds: float, at_most: float) -> None:
        beats = self.pulse[BEATS]
        self._quiet = 0.0 if beats != self._beats else self._quiet + seconds
        self._beats = beats
        allowed = at_most if beats else max(at_most, TO_START)
        if self._quiet >= allowed:
            self.kill()
            fix = "raise --env.timeout if it needs longer"
            raise self._lost(f"the environment did not answer within {allowed:g} s: {fix}")

    def step_back(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it died: the reason will be waiting in reply()
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + SPARE_NICENESS
            os.setpriority(os.PRIO_PROCESS, self.process.pid, niceness)

    def dismiss(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdin = None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, patience: float) -> None:
        # Reads what nobody asks for any more, or the worker could not come to the end of its input. A thread
        # may still wait for that answer: it gets less than it expects, and ends too.
        with self._ending:
            ended_before = self.process.returncode is not None
            try:
                self.process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                self.kill()
                self.process.communicate()
            else:
                if not ended_before:
                    self.kill()  # those that its environments started and left behind

    def _exit_code(self) -> int:
        with self._ending:
            if self.process.returncode is None:
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
                self.kill()  # those that its environments started and left behind
            return self.process.wait()

    def _lost(self, reason: str) -> LostError:
        lane = self.pulse[LANE]
        return LostError(reason, None if lane == NOBODY else lane, self.pulse[EPISODE])


def answered(connections: Sequence[Connection], seconds: float) -> list[Connection]:
    """Those who have something to say, as soon as there is one; none after so many seconds."""
    descriptors = [each.descriptor for each in connections if each.descriptor is not None]
    ready = wait(descriptors, seconds if len(descriptors) == len(connections) else 0)
    return [each for each in connections if each.descriptor is None or each.descriptor in ready]


def end_all(connections: Sequence[Connection]) -> None:
    """All together: those that are stuck have the same few seconds."""
    for each in connections:
        each.dismiss()
    until = time.monotonic() + PATIENCE
    for each in connections:
        each.end(max(0.0, until - time.monotonic()))


def _widen(pipe: BinaryIO) -> None:
    """Let a pipe hold a whole policy of the usual size, so that nobody waits while it is being read."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # on Linux
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
