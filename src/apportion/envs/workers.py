"""Processes that run environments: each serves some lanes, acts in NumPy, and knows nothing of JAX.

A worker is a plain child process (`python -m apportion.envs.workers`) spoken to over its standard streams, so
that user scripts need no `__main__` guard. With `workers=0` the lanes run inside the calling process instead.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO, Protocol

import numpy as np

from apportion.core.errors import UserError
from apportion.core.spec import Spec
from apportion.envs.factories import only_here
from apportion.envs.lane import Lane, Noise, play
from apportion.envs.make import EnvConfig
from apportion.envs.wire import Arrays, Message, receive, send, under

PATIENCE = 5.0  # seconds for a worker to end what it is doing, before it is killed
SPARE_NICENESS = 10  # of those that only evaluate, so that the training's own need not wait for them
PIPE_BYTES = 1 << 20  # what Linux gives to anyone; a policy with two layers of 256 takes 300 kB


class Server:
    """The worker's side: answers one request at a time."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str) -> None:
        self.config = config
        self.head = head
        self.lanes = [Lane(config, seed, head) for seed in seeds]
        self.evaluation_lanes: list[Lane] = []

    def answer(self, request: Message) -> Message:
        """Requests name what they want; arrays of lane i are called `i/...`."""
        head, arrays = request
        actors = [_unprefixed(arrays, i) for i in range(len(self.lanes))]
        match head["want"]:
            case "spec":
                return Message(self.lanes[0].spec.to_dict(), {})
            case "chunk":
                chunks = [
                    lane.collect(actor or None, head["steps"], head["iteration"])
                    for lane, actor in zip(self.lanes, actors, strict=True)
                ]
                return Message({}, _prefixed(chunks))
            case "episodes":
                return self._episodes(head, actors)
            case "where":
                return Message({}, _prefixed([lane.where() for lane in self.lanes]))
            case "put back":
                for lane, where in zip(self.lanes, actors, strict=True):
                    lane.put_back(where)
                return Message({}, {})
        raise ValueError(f"unknown request {head['want']!r}")

    def _episodes(self, head: dict[str, Any], actors: list[Arrays]) -> Message:
        if not self.evaluation_lanes:
            self.evaluation_lanes = [Lane(self.config, lane.seed, self.head) for lane in self.lanes]
        noise = Noise(head["noise"]["std"], tuple(head["noise"]["dims"])) if head["noise"] else None
        played = [
            _prefixed(play(lane, actor, head["stage"], head["episodes"], noise, head["first"]))
            for lane, actor in zip(self.evaluation_lanes, actors, strict=True)
        ]
        return Message({}, _prefixed(played))


class Connection(Protocol):
    """One worker as the trainer sees it. Requests are answered in order."""

    def request(self, head: dict[str, Any], arrays: Arrays) -> None: ...

    def reply(self) -> Message: ...

    def step_back(self) -> None: ...

    def close(self) -> None: ...


class InlineConnection:
    """A worker inside the calling process."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str) -> None:
        with _blaming_environments():
            self.server = Server(config, seeds, head)
        self.replies: list[Message] = []

    def request(self, head: dict[str, Any], arrays: Arrays) -> None:
        with _blaming_environments():
            self.replies.append(self.server.answer(Message(head, arrays)))

    def reply(self) -> Message:
        return self.replies.pop(0)

    def step_back(self) -> None:
        """It does nothing beside this process anyway."""

    def close(self) -> None:
        for lane in self.server.lanes + self.server.evaluation_lanes:
            lane.env.close()


class ProcessConnection:
    """A worker in a process of its own."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str) -> None:
        # One thread per worker: the policy's products are small, and the learner wants the other cores.
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apportion.envs.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The same search path as here, so that a user's module is found; its own process group, so that
            # Ctrl-C reaches only the trainer, which then finishes its iteration and saves.
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
            process_group=0,
        )
        _widen(self._stdin)
        _widen(self._stdout)
        send(self._stdin, {"config": asdict(config), "seeds": seeds, "head": head})

    @property
    def _stdin(self) -> BinaryIO:
        assert self.process.stdin is not None
        return self.process.stdin  # type: ignore[return-value]

    @property
    def _stdout(self) -> BinaryIO:
        assert self.process.stdout is not None
        return self.process.stdout  # type: ignore[return-value]

    def request(self, head: dict[str, Any], arrays: Arrays) -> None:
        with contextlib.suppress(BrokenPipeError):  # it failed earlier: the reason is waiting in reply()
            send(self._stdin, head, arrays)

    def reply(self) -> Message:
        try:
            message = receive(self._stdout)
        except EOFError:
            code = self.process.wait()
            raise UserError(f"an environment worker died (exit code {code}); its output is above") from None
        if "error" in message.head:
            raise UserError(message.head["error"])
        return message

    def step_back(self) -> None:
        """Take only the time that other processes leave."""
        with contextlib.suppress(ProcessLookupError):  # it died: the reason will be waiting in reply()
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + SPARE_NICENESS
            os.setpriority(os.PRIO_PROCESS, self.process.pid, niceness)

    def close(self) -> None:
        # Reads what nobody asks for any more, so that the worker can come to the end of its input. A thread
        # may still wait for that answer: it gets less than it expects, and ends too.
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


class Pool:
    """All lanes' environments, spread over workers. Stacked arrays [L, ...] go in and come out."""

    def __init__(self, config: EnvConfig, seeds: list[int], head: str, workers: int) -> None:
        self.lanes = len(seeds)
        workers = 0 if only_here(config.id) else workers
        groups = [list(map(int, g)) for g in np.array_split(np.arange(self.lanes), max(1, workers)) if g.size]
        self.groups = groups
        self.teams: list[list[Connection]] = []
        try:
            connect = ProcessConnection if workers else InlineConnection
            self._hire = partial(self._hire_team, config, seeds, head, connect)
            self._hire()
            self.has_spare_workers = workers > 0
            self.most_teams = spare_teams(len(groups)) if workers else 1
            self._ask({"want": "spec"})
            self.spec = Spec.from_dict(self._answers()[0].head)
        except BaseException:
            self.close()
            raise

    def start_chunk(self, actors: Arrays | None, steps: int, iteration: int) -> None:
        """Ask every lane to act for `steps` steps, at random without actors. Returns at once."""
        self._ask({"want": "chunk", "steps": steps, "iteration": iteration}, actors)

    def finish_chunk(self) -> Arrays:
        """The stacked arrays of replay.Chunk."""
        chunks = self._per_lane(self._answers())
        return {name: np.stack([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def episodes(
        self,
        actors: Arrays,
        stage: int,
        episodes: int,
        noise: Noise | None = None,
        *,
        beside_training: bool = False,
    ) -> list[list[Arrays]]:
        """Evaluation episodes of each lane. No chunk may be under way, unless spare workers are to play."""
        first = 1 if beside_training and self.has_spare_workers else 0  # the first team has the training's
        most = max(first + 1, self.most_teams)
        while len(self.teams) < min(most, first + episodes):
            self._hire()
        teams = range(first, len(self.teams))
        shares = [share for share in np.array_split(np.arange(episodes), len(teams)) if share.size]
        head = {"want": "episodes", "stage": stage, "noise": None if noise is None else noise._asdict()}
        for team, share in zip(teams, shares, strict=False):
            self._ask(head | {"first": int(share[0]), "episodes": len(share)}, actors, team)
        played: list[list[Arrays]] = [[] for _ in range(self.lanes)]
        for team, share in zip(teams, shares, strict=False):
            for lane, arrays in enumerate(self._per_lane(self._answers(team))):
                played[lane] += [_unprefixed(arrays, i) for i in range(len(share))]
        return played

    def where(self) -> list[Arrays]:
        """Where each lane's environment is. No chunk may be under way."""
        self._ask({"want": "where"})
        return self._per_lane(self._answers())

    def put_back(self, where: list[Arrays]) -> None:
        """Bring each lane's environment back to where it was."""
        for connection, group in zip(self.teams[0], self.groups, strict=True):
            connection.request({"want": "put back"}, _prefixed([where[i] for i in group]))
        self._answers()

    def close(self) -> None:
        for connection in [each for team in self.teams for each in team]:
            connection.close()
        self.teams = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _hire_team(
        self,
        config: EnvConfig,
        seeds: list[int],
        head: str,
        connect: type[ProcessConnection] | type[InlineConnection],
    ) -> None:
        """One more team of workers, each with some of the lanes. The first team has the training's own."""
        team: list[Connection] = []
        self.teams.append(team)
        for group in self.groups:
            # One by one: if the next fails, those already hired can still be dismissed.
            team.append(connect(config, [seeds[i] for i in group], head))
            if team is not self.teams[0]:
                team[-1].step_back()

    def _ask(self, head: dict[str, Any], stacked: Arrays | None = None, team: int = 0) -> None:
        for connection, group in zip(self.teams[team], self.groups, strict=True):
            lanes = [{name: array[i] for name, array in (stacked or {}).items()} for i in group]
            connection.request(head, _prefixed(lanes))

    def _answers(self, team: int = 0) -> list[Message]:
        return [connection.reply() for connection in self.teams[team]]

    def _per_lane(self, answers: list[Message]) -> list[Arrays]:
        pairs = zip(answers, self.groups, strict=True)
        return [_unprefixed(answer.arrays, i) for answer, group in pairs for i in range(len(group))]


def default_workers(lanes: int, learns_here: bool = True) -> int:
    """As many processes as lanes, but leave half of the cores to a learner that computes on them, and two to
    one that only has an accelerator to feed. None more than shortens the longest share: they go in step."""
    cores = os.cpu_count() or 2
    most = max(1, cores // 2 if learns_here else cores - 2)
    share = -(-lanes // most)
    return -(-lanes // share)


def spare_teams(workers: int) -> int:
    """How many teams of so many workers the machine has cores for."""
    return max(1, ((os.cpu_count() or 2) - 1) // workers)


def _prefixed(groups: list[Arrays]) -> Arrays:
    return {f"{i}/{name}": array for i, group in enumerate(groups) for name, array in group.items()}


def _unprefixed(arrays: Arrays, index: int) -> Arrays:
    return under(arrays, f"{index}/")


def _widen(pipe: BinaryIO) -> None:
    """Let a pipe hold a whole policy of the usual size, so that nobody waits while it is being read."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # on Linux
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


@contextlib.contextmanager
def _blaming_environments() -> Iterator[None]:
    """An environment's own bug becomes one line; its author gets the place too."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if "values to unpack" in reason:  # the most likely mistake, from the days of Gym
            reason += " (reset returns two values: observation, info; step returns five)"
        raise UserError(f"the environment raised {reason}") from error


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Answer requests until the trainer closes the stream; send errors instead of raising them."""
    try:
        head, _ = receive(stdin)
        with _blaming_environments():
            server = Server(EnvConfig(**head["config"]), head["seeds"], head["head"])
        while True:
            request = receive(stdin)
            with _blaming_environments():
                answer = server.answer(request)
            send(stdout, *answer)
    except (EOFError, BrokenPipeError):
        return
    except UserError as error:
        send(stdout, {"error": str(error)})


def main() -> None:
    # Whoever stops the trainer may signal us too (a batch system does), but the trainer still needs our
    # answers to save; when it goes, its stream closes.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    # A trainer that went does not read our last answer: from Python 3.13 on, leaving with it would complain.
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as stdout:
        os.dup2(2, 1)  # whatever an environment prints goes to stderr, not into our messages
        serve(sys.stdin.buffer, stdout)


if __name__ == "__main__":
    main()
