"""One worker as the supervisor sees it: asked over a pipe, watched while it works, ended."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import Any, BinaryIO, cast

from apportion.core.children import start
from apportion.core.config import UserError
from apportion.envs.make import EnvConfig
from apportion.envs.messages import (
    BEATS,
    EPISODE,
    LANE,
    NO_LANE,
    Arrays,
    Message,
    activity_file,
    no_activity,
    receive,
    send,
    shared_activity,
)
from apportion.envs.worker import Worker

TO_START = 120.0  # seconds for a new process to come to its environments, however short their own time is


class LostError(Exception):
    """A worker is gone, by itself or because it did not answer; which lane and episode it was at."""

    def __init__(self, reason: str, lane: int | None, episode: int) -> None:
        super().__init__(reason)
        self.lane = lane
        self.episode = episode


class InProcess:
    """A worker inside the calling process: nobody can interrupt it, nor need anybody wait for it."""

    descriptor = None

    def __init__(self, config: EnvConfig, seeds: list[int], head: str, spare: bool) -> None:
        self._worker = Worker(config, seeds, head, no_activity())
        self._reply: Message

    def request(self, head: dict[str, Any], arrays: Arrays) -> None:
        with contextlib.redirect_stdout(sys.stderr):  # what environments print is no result of ours
            try:
                self._reply = self._worker.answer(Message(head, arrays))
            except (Exception, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # which would take a worker along
                raise UserError(f"the environment raised {type(error).__name__}: {error}") from error

    def reply(self) -> Message:
        return self._reply

    def dismiss(self) -> None:
        self._worker.close()

    def waited(self, seconds: float, at_most: float) -> None:
        """It has answered when it was asked."""

    def end(self, patience: float) -> None:
        """It ends with this process."""

    def kill(self) -> None:
        """The same."""


class Process:
    """A worker in a process of its own. Requests are answered in order."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str, spare: bool) -> None:
        descriptor = activity_file()
        try:
            self.process = start("apportion.envs.worker", [descriptor])
            self._activity = shared_activity(descriptor)
        finally:
            os.close(descriptor)
        self._stdin = cast(BinaryIO, self.process.stdin)
        # Without a buffer, so that it shows from outside whether something has arrived.
        self._stdout: BinaryIO = self.process.stdout.raw  # type: ignore[union-attr]
        self.descriptor = self._stdout.fileno()
        self._quiet = 0.0  # seconds that somebody has waited for a sign of life
        self._beats = 0
        self._ending = threading.Lock()  # who asks and who closes may both find that it is over
        for pipe in (self._stdin, self._stdout) if hasattr(fcntl, "F_SETPIPE_SZ") else ():  # on Linux
            with contextlib.suppress(OSError):  # more than this user may have
                # What Linux gives to anyone. A whole policy fits into it, of two layers of 256 (300 kB) or
                # SimBa's (550), so that nobody waits while it is being read.
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 2**20)
        if spare:  # it only evaluates, and the training's own need not wait for it
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + 10
            os.setpriority(os.PRIO_PROCESS, self.process.pid, niceness)
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
        """It has not answered for so long: LostError after too long without a sign of life."""
        beats = self._activity[BEATS]
        self._quiet = 0.0 if beats != self._beats else self._quiet + seconds
        self._beats = beats
        allowed = at_most if beats else max(at_most, TO_START)
        if self._quiet >= allowed:
            self.kill()
            fix = "raise --env.timeout if it needs longer"
            raise self._lost(f"the environment did not answer within {allowed:g} s: {fix}")

    def dismiss(self) -> None:
        """Let it come to its end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdin = None

    def kill(self) -> None:
        """At once, with all that its environments started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, patience: float) -> None:
        """Wait so long for its end, then kill it.

        Reads what nobody asks for any more, or the worker could not come to the end of its input. A thread
        may still wait for that answer: it gets less than it expects, and ends too.
        """
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
        lane = self._activity[LANE]
        return LostError(reason, None if lane == NO_LANE else lane, self._activity[EPISODE])
