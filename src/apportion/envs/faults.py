"""What goes wrong with lanes: how often each environment was restarted, and which lanes are frozen and why.

A lane is an island: its faults cost it an episode and, when they are too many, its training; never a
neighbour's. Only a strict training ends at the first fault.
"""

import sys
import traceback
from threading import Lock
from typing import Any, NamedTuple

from apportion.core.config import UserError

# An environment's own ways to fail; whoever presses Ctrl-C is none of them.
FAILURES = (Exception, SystemExit)


def blame(error: BaseException, printed: set[str]) -> str:
    """An environment's own bug in one line. Its author gets the place too, once: `printed` are such lines."""
    if isinstance(error, UserError):
        return str(error)
    said = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    if "values to unpack" in said:  # the most likely mistake, from the days of Gym
        said += " (reset returns two values: observation, info; step returns five)"
    if "reset() got an unexpected keyword" in said:
        said += " (it is called as reset(seed=..., options=...))"
    reason = f"the environment raised {said}"
    if reason not in printed:
        printed.add(reason)
        traceback.print_exception(error, file=sys.stderr)
    return reason


class Fault(NamedTuple):
    """One thing that went wrong, for those who tell of it."""

    lane: int
    iteration: int
    reason: str
    restarts: int | None  # of this lane by now; None: it is frozen instead


class Faults:
    """The faults of all lanes so far. Threads that collect and that evaluate may both report."""

    def __init__(self, lanes: int, limit: int = 0, strict: bool = True) -> None:
        self.limit = limit
        self.strict = strict
        self.restarts = [0] * lanes
        self.reasons: list[str | None] = [None] * lanes  # of each lane's last fault
        self.frozen: dict[int, int] = {}  # lane → iteration from which on it stands still
        self._news: list[Fault] = []
        self._lock = Lock()

    def allowed(self, lane: int) -> int:
        """How many more restarts a lane may have."""
        return 0 if self.strict else self.limit - self.restarts[lane]

    def happened(self, lane: int, iteration: int, reason: str) -> None:
        """An environment failed: it is restarted, or after too many restarts its lane is frozen."""
        if self.strict:
            raise UserError(reason)
        with self._lock:
            if lane not in self.frozen and self.restarts[lane] < self.limit:
                self.restarts[lane] += 1
                self.reasons[lane] = reason
                self._news.append(Fault(lane, iteration, reason, self.restarts[lane]))
                return
        self.freeze(lane, iteration, f"{reason} (more often than --env.restarts {self.limit} allows)")

    def freeze(self, lane: int, iteration: int, reason: str) -> None:
        """From this iteration on the lane stands still."""
        if self.strict:
            raise UserError(reason)
        with self._lock:
            if lane not in self.frozen:
                self.frozen[lane] = iteration
                self.reasons[lane] = reason
                self._news.append(Fault(lane, iteration, reason, None))

    def frozen_by(self, iteration: int) -> set[int]:
        """The lanes that stand still in this iteration. One that fails in a chunk ahead does not yet."""
        with self._lock:
            return {lane for lane, since in self.frozen.items() if since <= iteration}

    def news(self) -> list[Fault]:
        """What has happened since this was asked last."""
        with self._lock:
            told, self._news = self._news, []
        return told

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        with self._lock:
            frozen = sorted(self.frozen.items())
            return {"restarts": list(self.restarts), "reasons": list(self.reasons), "frozen": frozen}

    def restore(self, data: dict[str, Any]) -> None:
        """Go on from what `to_dict` wrote."""
        self.restarts = [int(count) for count in data["restarts"]]
        self.reasons = list(data["reasons"])
        self.frozen = dict(data["frozen"])
