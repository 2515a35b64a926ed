"""The worker: a process that runs some lanes' environments, acts in NumPy, and knows nothing of JAX."""

import contextlib
import sys
from typing import Any, BinaryIO

from apportion.core.children import serving
from apportion.core.config import UserError
from apportion.envs.faults import FAILURES, blame
from apportion.envs.lane import ChunkWriter, Lane, Noise, UnrepeatableError, after_faults, play_one
from apportion.envs.make import EnvConfig
from apportion.envs.messages import (
    BEATS,
    LANE,
    NO_LANE,
    Activity,
    Arrays,
    Message,
    prefixed,
    receive,
    send,
    shared_activity,
    strip_prefix,
)


class Worker:
    """Answers one request at a time, for each lane that it names: for steps of training, or for evaluation
    episodes.

    A lane's answer says in `faults` what went wrong. With more of them than were allowed there may be no
    arrays, and the lane's environment is gone.
    """

    def __init__(self, config: EnvConfig, seeds: list[int], head: str, activity: Activity) -> None:
        self.config = config
        self.seeds = seeds
        self.head = head
        self.activity = activity
        self.lanes: dict[int, Lane] = {}
        self.evaluation_lanes: dict[int, Lane] = {}
        self.printed: set[str] = set()

    def answer(self, request: Message) -> Message:
        """Requests name what they want, and of which lanes; arrays of lane i are called `i/...`."""
        want = {"steps": self._steps, "episodes": self._episodes}[request.head["want"]]
        heads: list[dict[str, Any]] = []
        arrays: dict[int, Arrays] = {}
        for task in request.head["lanes"]:
            lane = task["lane"]
            self.activity[LANE] = lane
            faults: list[str] = []
            arrays[lane] = want(lane, request.head | task, strip_prefix(request.arrays, f"{lane}/"), faults)
            heads.append({"lane": lane, "faults": faults})
            if lane in self.lanes and "opening" in request.head:
                heads[-1]["spec"] = self.lanes[lane].spec.to_dict()
        self.activity[LANE] = NO_LANE
        return Message({"lanes": heads}, prefixed(arrays))

    def close(self) -> None:
        for lane in [*self.lanes.values(), *self.evaluation_lanes.values()]:
            lane.close()

    def _steps(self, lane: int, head: dict[str, Any], arrays: Arrays, faults: list[str]) -> Arrays:
        """A chunk of steps, and where the environment is then. With `where/...` it is brought there first.

        A failure costs one step and the episode under way: a new environment goes on with the next one. So
        does who cannot repeat itself on the way to `where`, unless it has to be `exactly` there. That is no
        failure: a neighbour took it along.
        """
        actor, where = strip_prefix(arrays, "actor/") or None, strip_prefix(arrays, "where/")
        writer: ChunkWriter | None = None
        while len(faults) <= head["allowed"]:
            try:
                if where:
                    self._made(self.lanes, lane).put_back(where, head["exactly"])
                    where = {}
                found = self.lanes[lane]
                writer = writer or found.writer(head["steps"])
                found.collect(actor, head["iteration"], writer)
                return writer.finish(found.observation) | prefixed({"where": found.where()})
            except UnrepeatableError:
                raise
            except FAILURES as error:
                faults.append(blame(error, self.printed))
                where = after_faults(where or self.lanes[lane].where(), 1)
                self._drop(self.lanes, lane)
        if writer is None:
            return {}
        if len(where["actions"]):  # its closed segments stay: the last of them needs the observation after it
            writer.final(where["observation"])
        return writer.finish(where["observation"]) | prefixed({"where": where})

    def _episodes(self, lane: int, head: dict[str, Any], arrays: Arrays, faults: list[str]) -> Arrays:
        """Evaluation episodes of these numbers, each of which may have failed before."""
        noise = Noise(**head["noise"]) if head["noise"] else None
        played: dict[int, Arrays] = {}
        for number in head["numbers"]:
            failed = head["failed"][number]
            while number not in played:
                try:
                    host, moment = self._made(self.evaluation_lanes, lane), (head["iteration"], number)
                    played[number] = play_one(host, strip_prefix(arrays, "actor/"), moment, noise, failed)
                except FAILURES as error:
                    failed += 1
                    faults.append(blame(error, self.printed))
                    self._drop(self.evaluation_lanes, lane)
                    if len(faults) > head["allowed"]:
                        return {}
        return prefixed(played)

    def _made(self, lanes: dict[int, Lane], lane: int) -> Lane:
        if lane not in lanes:
            lanes[lane] = Lane(self.config, self.seeds[lane], self.head, self.activity)
        return lanes[lane]

    def _drop(self, lanes: dict[int, Lane], lane: int) -> None:
        if lane in lanes:
            lanes.pop(lane).close()


def serve(stdin: BinaryIO, stdout: BinaryIO, activity: Activity) -> None:
    """Answer requests until the trainer closes the stream, then close the environments; errors are sent."""
    with contextlib.ExitStack() as ending:
        try:
            head, _ = receive(stdin)
            worker = Worker(EnvConfig(**head["config"]), head["seeds"], head["head"], activity)
            ending.callback(worker.close)
            while True:
                send(stdout, *worker.answer(receive(stdin)))
        except (EOFError, BrokenPipeError):
            return
        except UserError as error:
            send(stdout, {"error": str(error)})


def main() -> None:
    parent, descriptor = map(int, sys.argv[1:])
    activity = shared_activity(descriptor)
    activity[BEATS] = 1  # from here on its environments' time counts
    with serving(parent) as (stdin, stdout):
        serve(stdin, stdout, activity)


if __name__ == "__main__":
    main()
