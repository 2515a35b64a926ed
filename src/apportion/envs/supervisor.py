"""The supervisor: all lanes' environments, spread over worker processes that are replaced when they fail.

With `workers=0` the lanes run inside the calling process instead, where nobody can end what hangs.
"""

import os
import threading
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, from_dict
from apportion.core.spec import Spec
from apportion.envs.factories import only_here
from apportion.envs.faults import Faults
from apportion.envs.lane import BEFORE_THE_START, Noise, after_faults, blank_chunk
from apportion.envs.make import EnvConfig
from apportion.envs.messages import Arrays, Message, prefixed, strip_prefix
from apportion.envs.processes import InProcess, LostError, Process

PATIENCE = 5.0  # seconds for a worker to end what it is doing, before it is killed
LOOK_EVERY = 0.25  # seconds, at the most, between looks at how workers are


@dataclass(frozen=True)
class Request:
    """What lanes are asked for: steps or evaluation episodes. Those of a lost worker can be asked again."""

    want: str
    iteration: int
    facts: dict[str, Any]
    actors: Arrays | None  # [L, ...]
    absent: set[int]  # lanes that are not asked, or no longer
    failed: NDArray[np.int64]  # [L, episodes] how often each evaluation episode has taken its worker along


@dataclass
class Slot:
    """A worker, or who has taken its place, and the lanes it serves."""

    worker: Process | InProcess
    lanes: list[int]
    spare: bool
    known: set[int] = field(default_factory=set)  # lanes whose training environment it has
    asked: list[int] = field(default_factory=list)


class Pool(AbstractContextManager["Pool"]):
    """Stacked arrays [L, ...] go in and come out. What fails is told to `faults`; by default it raises.

    Teams of workers are asked and watched together, and replaced when one is lost. The first team has the
    training's environments, the others evaluate.
    """

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
        self.teams: list[list[Slot]] = []
        self._start = partial(Process if workers else InProcess, config, seeds, head)
        self._timeout = config.timeout
        self._hurried = False
        self._given_up: set[int] = set()  # lanes that were lost when there was no time to try again
        self._closed = False
        self._lock = threading.RLock()  # a thread that hires may be interrupted by a signal, and then kills
        self._where: list[Arrays] = [BEFORE_THE_START] * self.lanes
        self._chunk: Request  # under way
        try:
            self._hire()
            self.spec = self._open()
        except BaseException:
            self.kill()
            self.close()
            raise

    def start_chunk(self, actors: Arrays | None, steps: int, iteration: int) -> None:
        """Ask every lane to act for `steps` steps, at random without actors. Returns at once."""
        self._chunk = self._for_steps({"steps": steps, "exactly": False}, iteration, actors)
        self._ask(0, self._chunk)

    def finish_chunk(self) -> Arrays:
        """The stacked arrays of replay.Chunk. A lane that stands still has no rows in them."""
        answers, chunks = self._moved(self._chunk), []
        for lane in range(self.lanes):
            chunk = answers[lane].arrays if lane in answers else {}
            if not chunk:
                chunk = blank_chunk(self.spec, self._chunk.facts["steps"])
                chunk["observation"][0] = self._where[lane]["observation"]
            chunks.append(chunk)
        names = [name for name in chunks[0] if not name.startswith("where/")]
        return {name: np.stack([chunk[name] for chunk in chunks]) for name in names}

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
        while len(self.teams) < min(most, first + episodes):
            self._hire()
        teams = range(first, len(self.teams))
        shares = [share.tolist() for share in np.array_split(np.arange(episodes), len(teams)) if share.size]
        missing, failed = set(absent), np.zeros((self.lanes, episodes), np.int64)
        facts = {"noise": None if noise is None else noise._asdict()}
        requests = {
            team: Request("episodes", stage, {"numbers": numbers, **facts}, actors, missing, failed)
            for team, numbers in zip(teams, shares, strict=False)
        }
        for team, each in requests.items():
            self._ask(team, each)
        played: list[list[Arrays]] = [[] for _ in range(self.lanes)]
        for team, each in requests.items():
            for lane, answer in self._answers(team, each).items():
                numbers = each.facts["numbers"] if answer.arrays else []
                played[lane] += [strip_prefix(answer.arrays, f"{number}/") for number in numbers]
        return [lane if len(lane) == episodes else [] for lane in played]

    def where(self) -> list[Arrays]:
        """Where each lane's environment is. No chunk may be under way."""
        return list(self._where)

    def put_back(self, where: list[Arrays]) -> None:
        """Bring each lane's environment back to where it was."""
        self._where = list(where)
        for slot in self.teams[0]:
            slot.known = set()
        self._bring({"exactly": True})

    def hurry(self) -> None:
        """A stop is due: from now on nobody is waited for longer than a few seconds, nor asked again."""
        self._hurried = True
        self._timeout = min(self._timeout, PATIENCE)

    def kill(self) -> None:
        """End all workers at once."""
        with self._lock:
            self._closed = True
            for slot in self._slots():
                slot.worker.kill()

    def close(self) -> None:
        """End all workers together: those that are stuck have the same few seconds."""
        with self._lock:
            self._closed = True
        for slot in self._slots():
            slot.worker.dismiss()
        until = time.monotonic() + PATIENCE
        for slot in self._slots():
            slot.worker.end(max(0.0, until - time.monotonic()))
        self.teams = []

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- Where environments are

    def _open(self) -> Spec:
        """Make all environments. One of many that fails may be tried again; where none can be made, or one
        hangs, nothing is lost yet by giving up."""
        answers = self._bring({"exactly": False, "opening": True})
        specs = [from_dict(Spec, answer.head["spec"]) for answer in answers.values() if answer.arrays]
        if not specs:
            raise UserError(next(iter(answers.values())).head["faults"][0])
        nowhere = {
            "actions": np.zeros((0, specs[0].action_size), np.float32),
            "observation": np.zeros(specs[0].observation_size, np.float32),
        }
        self._where = [each if "observation" in each else each | nowhere for each in self._where]
        return specs[0]

    def _bring(self, facts: dict[str, Any]) -> dict[int, Message]:
        """All environments to where they should be: no step further."""
        request = self._for_steps({"steps": 0, **facts}, 0, None)
        self._ask(0, request)
        return self._moved(request)

    def _for_steps(self, facts: dict[str, Any], iteration: int, actors: Arrays | None) -> Request:
        none = np.zeros((self.lanes, 0), np.int64)
        return Request("steps", iteration, facts, actors, set(self.faults.frozen), none)

    def _moved(self, request: Request) -> dict[int, Message]:
        """The first team's answers, which say where environments are now."""
        answers = self._answers(0, request)
        for lane, (head, arrays) in answers.items():
            if arrays:
                self._where[lane] = strip_prefix(arrays, "where/")
            else:
                self._where[lane] = after_faults(self._where[lane], len(head["faults"]))
        return answers

    # --- Teams of workers

    def _hire(self) -> None:
        """One more team of workers, each with some of the lanes."""
        spare = bool(self.teams)
        team: list[Slot] = []
        self.teams.append(team)
        # One by one: if the next fails, those already hired can still be dismissed.
        team.extend(Slot(self._started(spare), group, spare) for group in self.groups)

    def _started(self, spare: bool) -> Process | InProcess:
        with self._lock:
            if self._closed:
                raise UserError("the environments have been closed")
            return self._start(spare)

    def _slots(self) -> list[Slot]:
        return [slot for team in self.teams for slot in team]

    def _ask(self, team: int, request: Request) -> None:
        """Returns at once; `_answers` has to be called before the team is asked again."""
        for slot in self.teams[team]:
            self._ask_one(slot, request)

    def _ask_one(self, slot: Slot, request: Request) -> None:
        slot.asked = [lane for lane in slot.lanes if lane not in request.absent | self._given_up]
        if not slot.asked:
            return
        heads, arrays = [], {}
        for lane in slot.asked:
            allowed = 0 if "opening" in request.facts else self.faults.allowed(lane)
            heads.append({"lane": lane, "allowed": allowed, "failed": request.failed[lane].tolist()})
            actor = {name: each[lane] for name, each in (request.actors or {}).items()}
            lost = request.want == "steps" and lane not in slot.known
            arrays[lane] = prefixed({"actor": actor, "where": self._where[lane] if lost else {}})
        common = {"want": request.want, "iteration": request.iteration, **request.facts}
        slot.worker.request({**common, "lanes": heads}, prefixed(arrays))

    def _answers(self, team: int, request: Request) -> dict[int, Message]:
        """What each lane said that was not absent. Faults have been told of."""
        found: dict[int, Message] = {}
        while waiting := [slot for slot in self.teams[team] if slot.asked]:
            tick, began = min(LOOK_EVERY, self._timeout / 4), time.monotonic()
            pipes = [slot.worker.descriptor for slot in waiting if slot.worker.descriptor is not None]
            ready = {None, *wait(pipes, tick)} if pipes else {None}  # who is in this process has answered
            # No more than that, whatever the clock says: this process too may have been halted for hours.
            waited = min(tick, time.monotonic() - began)
            for slot in waiting:
                try:
                    if slot.worker.descriptor in ready:
                        found |= self._read(slot, request)
                    else:
                        slot.worker.waited(waited, self._timeout)
                except LostError as lost:
                    self._replace(slot, request, lost)
        return found

    def _read(self, slot: Slot, request: Request) -> dict[int, Message]:
        message = slot.worker.reply()
        slot.asked = []
        found: dict[int, Message] = {}
        for head in message.head["lanes"]:
            lane = head["lane"]
            found[lane] = Message(head, strip_prefix(message.arrays, f"{lane}/"))
            for reason in head["faults"]:
                self.faults.happened(lane, request.iteration, reason)
        if request.want == "steps":
            slot.known = {lane for lane, answer in found.items() if answer.arrays}
        return found

    def _replace(self, slot: Slot, request: Request, lost: LostError) -> None:
        """The lane that was being served is to blame; the others only have to be served again."""
        lane = slot.asked[0] if lost.lane is None else lost.lane
        slot.worker.end(PATIENCE)
        with self._lock:
            closed = self._closed
        if closed or "opening" in request.facts:
            raise UserError(str(lost)) from None
        self.faults.happened(lane, request.iteration, str(lost))
        if lane in self.faults.frozen:
            request.absent.add(lane)
        if self._hurried:
            self._given_up.add(lane)
        if request.want == "steps":
            self._where[lane] = after_faults(self._where[lane], 1)
        else:
            request.failed[lane, lost.episode] += 1
        slot.worker, slot.known = self._started(slot.spare), set()
        self._ask_one(slot, request)


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
