"""The worker's side: a process that runs some lanes' environments, acts in NumPy, and knows nothing of JAX.

A worker is a plain child process (`python -m apportion.envs.server`) spoken to over its standard streams, so
that user scripts need no `__main__` guard.
"""

import contextlib
import os
import sys
from functools import partial
from typing import Any, BinaryIO

from apportion.core import children
from apportion.core.config import UserError
from apportion.envs.faults import FAILURES, Trouble
from apportion.envs.lane import Lane, Noise, UnrepeatableError, play_one
from apportion.envs.make import EnvConfig
from apportion.envs.wire import (
    BEATS,
    LANE,
    NOBODY,
    Arrays,
    Message,
    Pulse,
    prefixed,
    receive,
    send,
    shared_pulse,
    strip_prefix,
)


class Server:
    """Answers one request at a time, for each lane that it names.

    A lane's answer says in `faults` what went wrong. With more of them than were allowed there may be no
    arrays, and the lane's environment is gone.
    """

    def __init__(self, config: EnvConfig, seeds: list[int], head: str, pulse: Pulse) -> None:
        self.config = config
        self.seeds = seeds
        self.head = head
        self.pulse = pulse
        self.lanes: dict[int, Lane] = {}
        self.evaluation_lanes: dict[int, Lane] = {}
        self.printed: set[str] = set()

    def answer(self, request: Message) -> Message:
        """Requests name what they want, and of which lanes; arrays of lane i are called `i/...`."""
        head, arrays = request
        requests = {
            "open": self._open,
            "chunk": self._chunk,
            "put back": self._put_back,
            "episodes": self._episodes,
        }
        answers: dict[int, Message] = {}
        for task in head["lanes"]:
            lane = task["lane"]
            self.pulse[LANE] = lane
            trouble = Trouble(task["allowed"], self.printed)
            found = requests[head["want"]](lane, head | task, strip_prefix(arrays, f"{lane}/"), trouble)
            facts = {"lane": lane, "faults": trouble.reasons, "open": lane in self.lanes}
            answers[lane] = Message(found.head | facts, found.arrays)
        self.pulse[LANE] = NOBODY
        return Message(
            {"lanes": [answer.head for answer in answers.values()]},
            prefixed({lane: answer.arrays for lane, answer in answers.items()}),
        )

    def close(self) -> None:
        for lane in [*self.lanes.values(), *self.evaluation_lanes.values()]:
            lane.close()

    def _open(self, lane: int, head: dict[str, Any], arrays: Arrays, trouble: Trouble) -> Message:
        """Make the environment: its facts, and where it stands."""
        try:
            self.lanes[lane] = self._make(lane, start=True)
        except FAILURES as error:
            trouble.note(error)
            return Message({}, {})
        return Message({"spec": self.lanes[lane].spec.to_dict()}, self.lanes[lane].where())

    def _chunk(self, lane: int, head: dict[str, Any], arrays: Arrays, trouble: Trouble) -> Message:
        """So many steps. In a process that is new to the lane, from where it was."""
        found = self.lanes.get(lane) or self._recover(lane, strip_prefix(arrays, "where/"), trouble)
        if found is None:
            return Message({}, {})
        actor = strip_prefix(arrays, "actor/") or None
        chunk = found.collect(actor, head["steps"], head["iteration"], trouble)
        if len(trouble.reasons) > trouble.allowed:
            self.lanes.pop(lane).close()
        return Message({"where": _place(found)}, chunk)

    def _put_back(self, lane: int, head: dict[str, Any], arrays: Arrays, trouble: Trouble) -> Message:
        """As the lane was when a run was saved. An environment that cannot repeat itself is an error."""
        try:
            if lane not in self.lanes:
                self.lanes[lane] = self._make(lane)
            self.lanes[lane].put_back(arrays)
        except UnrepeatableError:
            raise
        except FAILURES as error:
            if trouble.note(error):
                self._recover(lane, arrays, trouble)
        return Message({}, {})

    def _episodes(self, lane: int, head: dict[str, Any], arrays: Arrays, trouble: Trouble) -> Message:
        """Evaluation episodes of these numbers, each of which may have failed before."""
        noise = Noise(head["noise"]["std"], tuple(head["noise"]["dims"])) if head["noise"] else None
        played: dict[int, Arrays] = {}
        for number, failed in zip(head["numbers"], head["failed"], strict=True):
            while number not in played:
                try:
                    if lane not in self.evaluation_lanes:
                        self.evaluation_lanes[lane] = self._make(lane)
                    host, moment = self.evaluation_lanes[lane], (head["iteration"], number)
                    played[number] = play_one(host, strip_prefix(arrays, "actor/"), moment, noise, failed)
                except FAILURES as error:
                    failed += 1
                    if lane in self.evaluation_lanes:
                        self.evaluation_lanes.pop(lane).close()
                    if not trouble.note(error):
                        return Message({}, {})
        return Message({}, prefixed(played))

    def _make(self, lane: int, start: bool = False) -> Lane:
        return Lane(self.config, self.seeds[lane], self.head, self.pulse, start=start)

    def _recover(self, lane: int, where: Arrays, trouble: Trouble) -> Lane | None:
        """A lane whose environment is gone, where it was; after a failure there, in its next episode.

        One that cannot repeat itself is left there too. That is no failure: a neighbour took it along.
        """
        while len(trouble.reasons) <= trouble.allowed:
            if lane in self.lanes:
                self.lanes.pop(lane).close()
            try:
                found = self._make(lane)
                if trouble.reasons:
                    found.restarts = int(where["restarts"]) + len(trouble.reasons)
                    found.leave(where)
                else:
                    _put_back_or_leave(found, where)
                self.lanes[lane] = found
                return found
            except FAILURES as error:
                trouble.note(error)
        return None


def _put_back_or_leave(lane: Lane, where: Arrays) -> None:
    try:
        lane.put_back(where)
    except UnrepeatableError:
        lane.leave(where)


def _place(lane: Lane) -> dict[str, int]:
    """With the chunk's own rows, all that `Lane.where` says."""
    return {"episode": lane.episode, "restarts": lane.restarts, "steps": len(lane.actions)}


def serve(stdin: BinaryIO, stdout: BinaryIO, pulse: Pulse) -> None:
    """Answer requests until the trainer closes the stream, then close the environments; errors are sent."""
    with contextlib.ExitStack() as ending:
        try:
            head, _ = receive(stdin)
            server = Server(EnvConfig(**head["config"]), head["seeds"], head["head"], pulse)
            ending.callback(server.close)
            while True:
                send(stdout, *server.answer(receive(stdin)))
        except (EOFError, BrokenPipeError):
            return
        except UserError as error:
            send(stdout, {"error": str(error)})


def _silence(descriptors: tuple[int, ...]) -> None:
    """A copy of this process that an environment makes neither hears nor answers the trainer."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in descriptors:
        os.dup2(nothing, each)


def main() -> None:
    parent, descriptor = map(int, sys.argv[1:])
    children.serve(parent)
    pulse = shared_pulse(descriptor)
    pulse[LANE] = NOBODY
    pulse[BEATS] = 1  # from here on its environments' time counts
    stdin = os.fdopen(os.dup(0), "rb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # an environment that asks for input gets none, not our messages
    # A trainer that went does not read our last answer: from Python 3.13 on, leaving with it would complain.
    with stdin, contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as stdout:
        os.dup2(2, 1)  # whatever an environment prints goes to stderr, not into our messages
        os.register_at_fork(after_in_child=partial(_silence, (stdin.fileno(), stdout.fileno())))
        serve(stdin, stdout, pulse)


if __name__ == "__main__":
    main()
