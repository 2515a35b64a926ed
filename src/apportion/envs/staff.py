"""Teams of workers: asked together, watched together, and replaced when one is lost with what it served."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from apportion.core.config import UserError
from apportion.envs.connections import PATIENCE, Connection, LostError, answered, end_all
from apportion.envs.faults import Faults
from apportion.envs.wire import Arrays, Message, prefixed, under

LOOK_EVERY = 0.25  # seconds, at the most


@dataclass(frozen=True)
class Errand:
    """What lanes are asked for, in a form in which those of a lost worker can be asked again."""

    want: str
    iteration: int
    facts: dict[str, Any]  # the same for all lanes
    task: Callable[[int, bool], tuple[dict[str, Any], Arrays]]  # of one lane, which may be new to its worker
    lost: Callable[[int, LostError], None]  # called when a lane took its worker along
    absent: set[int]  # lanes that are not asked, or no longer


@dataclass
class Seat:
    """A worker, or who has taken its place, and the lanes it serves."""

    connection: Connection
    lanes: list[int]
    spare: bool
    known: set[int] = field(default_factory=set)  # lanes that it has served in training
    asked: list[int] = field(default_factory=list)


class Staff:
    """All workers of a pool. The first team has the training's environments, the others evaluate."""

    def __init__(
        self, connect: Callable[[], Connection], groups: list[list[int]], faults: Faults, timeout: float
    ) -> None:
        self.teams: list[list[Seat]] = []
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
        team: list[Seat] = []
        self.teams.append(team)
        for group in self._groups:
            seat = Seat(self._connected(spare), group, spare)
            team.append(seat)  # one by one: if the next fails, those already hired can still be dismissed

    def ask(self, team: int, errand: Errand) -> None:
        """Returns at once; `answers` has to be called before the team is asked again."""
        for seat in self.teams[team]:
            self._ask(seat, errand)

    def answers(self, team: int, errand: Errand) -> dict[int, Message]:
        """What each lane said that was not absent. Faults have been told of."""
        found: dict[int, Message] = {}
        while waiting := [seat for seat in self.teams[team] if seat.asked]:
            tick, began = min(LOOK_EVERY, self._timeout / 4), time.monotonic()
            ready = answered([seat.connection for seat in waiting], tick)
            # No more than that, whatever the clock says: this process too may have been halted for hours.
            waited = min(tick, time.monotonic() - began)
            for seat in waiting:
                try:
                    if seat.connection in ready:
                        found |= self._read(seat, errand)
                    else:
                        seat.connection.waited(waited, self._timeout)
                except LostError as lost:
                    self._replace(seat, errand, lost)
        return found

    def hurry(self) -> None:
        """From now on nobody is waited for longer than a few seconds, nor asked again after that."""
        self._hurried = True
        self._timeout = min(self._timeout, PATIENCE)

    def kill(self) -> None:
        """End all workers at once."""
        with self._lock:
            self._closed = True
            for seat in self._seats():
                seat.connection.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        end_all([seat.connection for seat in self._seats()])
        self.teams = []

    def _seats(self) -> list[Seat]:
        return [seat for team in self.teams for seat in team]

    def _connected(self, spare: bool) -> Connection:
        with self._lock:
            if self._closed:
                raise UserError("the environments have been closed")
            connection = self._connect()
        if spare:
            connection.step_back()
        return connection

    def _ask(self, seat: Seat, errand: Errand) -> None:
        seat.asked = [lane for lane in seat.lanes if lane not in errand.absent | self._given_up]
        if not seat.asked:
            return
        heads, arrays = [], {}
        for lane in seat.asked:
            head, arrays[lane] = errand.task(lane, lane not in seat.known)
            heads.append({"lane": lane, "allowed": self._faults.allowed(lane), **head})
        common = {"want": errand.want, "iteration": errand.iteration, **errand.facts}
        seat.connection.request({**common, "lanes": heads}, prefixed(arrays))

    def _read(self, seat: Seat, errand: Errand) -> dict[int, Message]:
        message = seat.connection.reply()
        seat.asked = []
        found: dict[int, Message] = {}
        for head in message.head["lanes"]:
            lane = head["lane"]
            found[lane] = Message(head, under(message.arrays, f"{lane}/"))
            for reason in head["faults"]:
                self._faults.happened(lane, errand.iteration, reason)
        seat.known = {lane for lane, answer in found.items() if answer.head["open"]}
        return found

    def _replace(self, seat: Seat, errand: Errand, lost: LostError) -> None:
        """The lane that was being served is to blame; the others only have to be served again."""
        lane = seat.asked[0] if lost.lane is None else lost.lane
        seat.connection.end(PATIENCE)
        with self._lock:
            if self._closed:
                raise UserError(str(lost)) from None
        self._faults.happened(lane, errand.iteration, str(lost))
        if lane in self._faults.frozen:
            errand.absent.add(lane)
        if self._hurried:
            self._given_up.add(lane)
        errand.lost(lane, lost)
        seat.connection, seat.known = self._connected(seat.spare), set()
        self._ask(seat, errand)
