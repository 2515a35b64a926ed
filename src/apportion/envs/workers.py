"""All lanes' environments, spread over worker processes that are replaced when they fail.

With `workers=0` the lanes run inside the calling process instead, where nobody can end what hangs.
"""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.envs.connections import (
    PATIENCE,
    Connection,
    InlineConnection,
    LostError,
    ProcessConnection,
    answered,
    end_all,
)
from apportion.envs.factories import only_here
from apportion.envs.faults import Faults
from apportion.envs.lane import ChunkWriter, Noise
from apportion.envs.make import EnvConfig
from apportion.envs.wire import Arrays, Message, prefixed, strip_prefix

# --- The supervisor: teams of workers are asked and watched together, and replaced when one is lost


LOOK_EVERY = 0.25  # seconds, at the most


@dataclass(frozen=True)
class Request:
    """What lanes are asked for, in a form in which those of a lost worker can be asked again."""

    want: str
    iteration: int
    facts: dict[str, Any]  # the same for all lanes
    task: Callable[[int, bool], tuple[dict[str, Any], Arrays]]  # of one lane, which may be new to its worker
    lost: Callable[[int, LostError], None]  # called when a lane took its worker along
    absent: set[int]  # lanes that are not asked, or no longer


@dataclass
class Worker:
    """A worker, or who has taken its place, and the lanes it serves."""

    connection: Connection
    lanes: list[int]
    spare: bool
    known: set[int] = field(default_factory=set)  # lanes that it has served in training
    asked: list[int] = field(default_factory=list)


class Supervisor:
    """All workers of a pool. The first team has the training's environments, the others evaluate."""

    def __init__(
        self, connect: Callable[[], Connection], groups: list[list[int]], faults: Faults, timeout: float
    ) -> None:
        self.teams: list[list[Worker]] = []
        self._hurried = False
        self._given_up: set[int] = set()  # lanes that were lost when there was no time to try again
        self._connect = connect
        self._groups = groups
        self._faults = faults
        self._timeout = timeout
        self._closed = False
        self._lock = RLock()  # a thread that hires may be interrupted by a signal, and then kills

    def hire(self) -> None:
        """One more team of workers, each with some of the lanes."""
        spare = bool(self.teams)
        team: list[Worker] = []
        self.teams.append(team)
        for group in self._groups:
            worker = Worker(self._connected(spare), group, spare)
            team.append(worker)  # one by one: if the next fails, those already hired can still be dismissed

    def ask(self, team: int, request: Request) -> None:
        """Returns at once; `answers` has to be called before the team is asked again."""
        for worker in self.teams[team]:
            self._ask(worker, request)

    def answers(self, team: int, request: Request) -> dict[int, Message]:
        """What each lane said that was not absent. Faults have been told of."""
        found: dict[int, Message] = {}
        while waiting := [worker for worker in self.teams[team] if worker.asked]:
            tick, began = min(LOOK_EVERY, self._timeout / 4), time.monotonic()
            ready = answered([worker.connection for worker in waiting], tick)
            # No more than that, whatever the clock says: this process too may have been halted for hours.
            waited = min(tick, time.monotonic() - began)
            for worker in waiting:
                try:
                    if worker.connection in ready:
                        found |= self._read(worker, request)
                    else:
                        worker.connection.waited(waited, self._timeout)
                except LostError as lost:
                    self._replace(worker, request, lost)
        return found

    def hurry(self) -> None:
        """From now on nobody is waited for longer than a few seconds, nor asked again after that."""
        self._hurried = True
        self._timeout = min(self._timeout, PATIENCE)

    def kill(self) -> None:
        """End all workers at once."""
        with self._lock:
            self._closed = True
            for worker in self._workers():
                worker.connection.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        end_all([worker.connection for worker in self._workers()])
        self.teams = []

    def _workers(self) -> list[Worker]:
        return [worker for team in self.teams for worker in team]

    def _connected(self, spare: bool) -> Connection:
        with self._lock:
            if self._closed:
                raise UserError("the environments have been closed")
            connection = self._connect()
        if spare:
            connection.step_back()
        return connection

    def _ask(self, worker: Worker, request: Request) -> None:
        worker.asked = [lane for lane in worker.lanes if lane not in request.absent | self._given_up]
        if not worker.asked:
            return
        heads, arrays = [], {}
        for lane in worker.asked:
            head, arrays[lane] = request.task(lane, lane not in worker.known)
            heads.append({"lane": lane, "allowed": self._faults.allowed(lane), **head})
        common = {"want": request.want, "iteration": request.iteration, **request.facts}
        worker.connection.request({**common, "lanes": heads}, prefixed(arrays))

    def _read(self, worker: Worker, request: Request) -> dict[int, Message]:
        message = worker.connection.reply()
        worker.asked = []
        found: dict[int, Message] = {}
        for head in message.head["lanes"]:
            lane = head["lane"]
            found[lane] = Message(head, strip_prefix(message.arrays, f"{lane}/"))
            for reason in head["faults"]:
                self._faults.happened(lane, request.iteration, reason)
        worker.known = {lane for lane, answer in found.items() if answer.head["open"]}
        return found

    def _replace(self, worker: Worker, request: Request, lost: LostError) -> None:
        """The lane that was being served is to blame; the others only have to be served again."""
        lane = worker.asked[0] if lost.lane is None else lost.lane
        worker.connection.end(PATIENCE)
        with self._lock:
            if self._closed:
                raise UserError(str(lost)) from None
        self._faults.happened(lane, request.iteration, str(lost))
        if lane in self._faults.frozen:
            request.absent.add(lane)
        if self._hurried:
            self._given_up.add(lane)
        request.lost(lane, lost)
        worker.connection, worker.known = self._connected(worker.spare), set()
        self._ask(worker, request)


# --- Lanes


class Pool:
    """Stacked arrays [L, ...] go in and come out. What fails is told to `faults`; by default it raises."""

    def __init__(
        self, config: EnvConfig, seeds: list[int], head: str, workers: int, faults: Faults | None = None
    ) -> None:
        self.lanes = len(seeds)
        self.faults = Faults(self.lanes) if faults is None else faults
        workers = 0 if only_here(config.id) else workers
        groups = [list(map(int, g)) for g in np.array_split(np.arange(self.lanes), max(1, workers)) if g.size]
        self.groups = groups
        self.has_spare_workers = workers > 0
        self.most_teams = spare_teams(len(groups)) if workers else 1
        connect = partial(ProcessConnection if workers else InlineConnection, config, seeds, head)
        self.supervisor = Supervisor(connect, groups, self.faults, config.timeout)
        self._chunk: Request  # under way
        try:
            self.supervisor.hire()
            self.spec = self._open()
        except BaseException:
            self.supervisor.kill()
            self.close()
            raise

    def start_chunk(self, actors: Arrays | None, steps: int, iteration: int) -> None:
        """Ask every lane to act for `steps` steps, at random without actors. Returns at once."""

        def task(lane: int, new: bool) -> tuple[dict[str, Any], Arrays]:
            where = {f"where/{name}": array for name, array in self._where[lane].items()} if new else {}
            return {}, {**_actor(actors, lane), **where}

        facts, absent = {"steps": steps}, set(self.faults.frozen)
        self._chunk = Request("chunk", iteration, facts, task, lambda lane, _: self._leave(lane, 1), absent)
        self.supervisor.ask(0, self._chunk)

    def finish_chunk(self) -> Arrays:
        """The stacked arrays of replay.Chunk. A lane that stands still has no rows in them."""
        answers = self.supervisor.answers(0, self._chunk)
        chunks = [self._moved(lane, answers.get(lane)) for lane in range(self.lanes)]
        return {name: np.stack([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def episodes(
        self,
        actors: Arrays,
        stage: int,
        episodes: int,
        noise: Noise | None = None,
        *,
        beside_training: bool = False,
        absent: Collection[int] = (),
    ) -> list[list[Arrays]]:
        """Evaluation episodes of each lane; none of lanes that are absent, or that fail too often.

        No chunk may be under way, unless spare workers are to play.
        """
        first = 1 if beside_training and self.has_spare_workers else 0  # the first team has the training's
        most = max(first + 1, self.most_teams)
        while len(self.supervisor.teams) < min(most, first + episodes):
            self.supervisor.hire()
        teams = range(first, len(self.supervisor.teams))
        shares = [share.tolist() for share in np.array_split(np.arange(episodes), len(teams)) if share.size]
        missing, failed = set(absent), np.zeros((self.lanes, episodes), np.int64)

        def lost(lane: int, how: LostError) -> None:
            failed[lane, how.episode] += 1

        def request(numbers: list[int]) -> Request:
            def task(lane: int, _: bool) -> tuple[dict[str, Any], Arrays]:
                return {"failed": failed[lane, numbers].tolist()}, _actor(actors, lane)

            facts = {"numbers": numbers, "noise": None if noise is None else noise._asdict()}
            return Request("episodes", stage, facts, task, lost, missing)

        requests = list(zip(teams, map(request, shares), strict=False))
        for team, each in requests:
            self.supervisor.ask(team, each)
        played: list[list[Arrays]] = [[] for _ in range(self.lanes)]
        for team, each in requests:
            for lane, answer in self.supervisor.answers(team, each).items():
                numbers = each.facts["numbers"] if answer.arrays else []
                played[lane] += [strip_prefix(answer.arrays, f"{number}/") for number in numbers]
        return [lane if len(lane) == episodes else [] for lane in played]

    def where(self) -> list[Arrays]:
        """Where each lane's environment is. No chunk may be under way."""
        return list(self._where)

    def put_back(self, where: list[Arrays]) -> None:
        """Bring each lane's environment back to where it was."""
        self._where = [{"restarts": np.asarray(0), "left": np.asarray(False), **each} for each in where]

        def task(lane: int, _: bool) -> tuple[dict[str, Any], Arrays]:
            return {}, self._where[lane]

        request = Request(
            "put back", 0, {}, task, lambda lane, _: self._leave(lane, 1), set(self.faults.frozen)
        )
        self.supervisor.ask(0, request)
        for lane, answer in self.supervisor.answers(0, request).items():
            if answer.head["faults"]:
                self._leave(lane, len(answer.head["faults"]))

    def hurry(self) -> None:
        """A stop is due: from now on nobody is waited for longer than a few seconds, nor asked again."""
        self.supervisor.hurry()

    def kill(self) -> None:
        """End all workers at once."""
        self.supervisor.kill()

    def close(self) -> None:
        self.supervisor.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> Spec:
        """Make all environments. One of many that fails may be tried again; where none can be made, or one
        hangs, nothing is lost yet by giving up."""

        def lost(_: int, how: LostError) -> None:
            raise UserError(str(how))

        request = Request("open", 0, {}, lambda lane, _: ({}, {}), lost, set(self.faults.frozen))
        self.supervisor.ask(0, request)
        answers = self.supervisor.answers(0, request)
        specs = [Spec.from_dict(answer.head["spec"]) for answer in answers.values() if answer.arrays]
        if not specs:
            raise UserError(next(iter(answers.values())).head["faults"][0])
        self._where = [_before_the_start(specs[0]) for _ in range(self.lanes)]
        for lane, answer in answers.items():
            self._where[lane] |= answer.arrays
            if answer.head["faults"]:
                self._leave(lane, 1)
        return specs[0]

    def _moved(self, lane: int, answer: Message | None) -> Arrays:
        """The lane's chunk. Its actions since the episode began say where it is now."""
        before = self._where[lane]
        if answer is None or not answer.arrays:
            if answer is not None:
                self._leave(lane, len(answer.head["faults"]))
            steps = self._chunk.facts["steps"]
            empty = ChunkWriter(steps, self.spec.observation_size, self.spec.action_size)
            return empty.finish(before["observation"])
        chunk, now = answer.arrays, answer.head["where"]
        rows = int(chunk["rows"])
        frozen = len(answer.head["faults"]) > 0 and lane in self.faults.frozen
        if frozen:
            actions = before["actions"][:0]  # the episode that failed has been left
        elif now["episode"] == before["episode"] and now["restarts"] == before["restarts"]:
            actions = np.concatenate([before["actions"], chunk["action"][:rows]])
        else:
            actions = chunk["action"][rows - now["steps"] : rows].copy()
        self._where[lane] = {
            "episode": np.asarray(now["episode"], np.int64),
            "restarts": np.asarray(now["restarts"], np.int64),
            "left": np.asarray(frozen),
            "actions": actions,
            "observation": chunk["observation"][rows].copy(),
        }
        return chunk

    def _leave(self, lane: int, faults: int) -> None:
        """The lane's environment is gone, and with it the episode that was under way."""
        where = self._where[lane]
        restarts = np.asarray(int(where["restarts"]) + faults, np.int64)
        self._where[lane] = {**where, "restarts": restarts, "left": np.asarray(True)}


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


def _actor(actors: Arrays | None, lane: int) -> Arrays:
    return {f"actor/{name}": array[lane] for name, array in (actors or {}).items()}


def _before_the_start(spec: Spec) -> Arrays:
    """Where a lane is whose environment could not be made yet: its next episode is the first."""
    return {
        "episode": np.asarray(-1, np.int64),
        "restarts": np.asarray(0, np.int64),
        "left": np.asarray(True),
        "actions": np.zeros((0, spec.action_size), np.float32),
        "observation": np.zeros(spec.observation_size, np.float32),
    }
