"""All lanes' environments, spread over worker processes that are replaced when they fail.

With `workers=0` the lanes run inside the calling process instead, where nobody can end what hangs.
"""

import os
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.envs.chunk import ChunkWriter
from apportion.envs.connections import InlineConnection, LostError, ProcessConnection
from apportion.envs.factories import only_here
from apportion.envs.faults import Faults
from apportion.envs.lane import Noise
from apportion.envs.make import EnvConfig
from apportion.envs.staff import Errand, Staff
from apportion.envs.wire import Arrays, Message, under


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
        self.staff = Staff(connect, groups, self.faults, config.timeout)
        self._chunk: Errand  # under way
        try:
            self.staff.hire()
            self.spec = self._open()
        except BaseException:
            self.staff.kill()
            self.close()
            raise

    def start_chunk(self, actors: Arrays | None, steps: int, iteration: int) -> None:
        """Ask every lane to act for `steps` steps, at random without actors. Returns at once."""

        def task(lane: int, new: bool) -> tuple[dict[str, Any], Arrays]:
            where = {f"where/{name}": array for name, array in self._where[lane].items()} if new else {}
            return {}, {**_actor(actors, lane), **where}

        facts, absent = {"steps": steps}, set(self.faults.frozen)
        self._chunk = Errand("chunk", iteration, facts, task, lambda lane, _: self._leave(lane, 1), absent)
        self.staff.ask(0, self._chunk)

    def finish_chunk(self) -> Arrays:
        """The stacked arrays of replay.Chunk. A lane that stands still has no rows in them."""
        answers = self.staff.answers(0, self._chunk)
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
        while len(self.staff.teams) < min(most, first + episodes):
            self.staff.hire()
        teams = range(first, len(self.staff.teams))
        shares = [share.tolist() for share in np.array_split(np.arange(episodes), len(teams)) if share.size]
        missing, failed = set(absent), np.zeros((self.lanes, episodes), np.int64)

        def lost(lane: int, how: LostError) -> None:
            failed[lane, how.episode] += 1

        def errand(numbers: list[int]) -> Errand:
            def task(lane: int, _: bool) -> tuple[dict[str, Any], Arrays]:
                return {"failed": failed[lane, numbers].tolist()}, _actor(actors, lane)

            facts = {"numbers": numbers, "noise": None if noise is None else noise._asdict()}
            return Errand("episodes", stage, facts, task, lost, missing)

        errands = list(zip(teams, map(errand, shares), strict=False))
        for team, each in errands:
            self.staff.ask(team, each)
        played: list[list[Arrays]] = [[] for _ in range(self.lanes)]
        for team, each in errands:
            for lane, answer in self.staff.answers(team, each).items():
                numbers = each.facts["numbers"] if answer.arrays else []
                played[lane] += [under(answer.arrays, f"{number}/") for number in numbers]
        return [lane if len(lane) == episodes else [] for lane in played]

    def where(self) -> list[Arrays]:
        """Where each lane's environment is. No chunk may be under way."""
        return list(self._where)

    def put_back(self, where: list[Arrays]) -> None:
        """Bring each lane's environment back to where it was."""
        self._where = [{"restarts": np.asarray(0), "left": np.asarray(False), **each} for each in where]

        def task(lane: int, _: bool) -> tuple[dict[str, Any], Arrays]:
            return {}, self._where[lane]

        errand = Errand(
            "put back", 0, {}, task, lambda lane, _: self._leave(lane, 1), set(self.faults.frozen)
        )
        self.staff.ask(0, errand)
        for lane, answer in self.staff.answers(0, errand).items():
            if answer.head["faults"]:
                self._leave(lane, len(answer.head["faults"]))

    def hurry(self) -> None:
        """A stop is due: from now on nobody is waited for longer than a few seconds, nor asked again."""
        self.staff.hurry()

    def kill(self) -> None:
        """End all workers at once."""
        self.staff.kill()

    def close(self) -> None:
        self.staff.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> Spec:
        """Make all environments. One of many that fails may be tried again; where none can be made, or one
        hangs, nothing is lost yet by giving up."""

        def lost(_: int, how: LostError) -> None:
            raise UserError(str(how))

        errand = Errand("open", 0, {}, lambda lane, _: ({}, {}), lost, set(self.faults.frozen))
        self.staff.ask(0, errand)
        answers = self.staff.answers(0, errand)
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
