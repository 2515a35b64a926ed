"""Looks at many segments at once: when they are due, what they measure, and the threads that take them.

The training does not wait for a look. What it finds counts from an iteration on that is known when it starts:
a tenth later than it started, counted from the first iteration. So the same run brings the same numbers,
however fast the machine is, and only waits where a look takes longer than that.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.types import Findings, Method, Record, Revision, State
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.nn.lanes import choose
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.scaling import Scaling
from apportion.training.settings import Config

NOTHING = -1  # in place of an iteration: nothing is awaited

Counts = NDArray[np.int64]  # [L] closed segments
Lanes = NDArray[np.bool_]  # [L]


class Reviser:
    """Measures units anew, and lets the method look again, each time a lane's segments have grown enough."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.revision = config.make_method().revision
        self.at = np.full(config.lanes, NOTHING, np.int32)  # when what is awaited counts
        self._looks: dict[int, Future[Findings]] = {}  # by lane; of one that began in another process, none
        self._threads = ThreadPoolExecutor(min(config.lanes, os.cpu_count() or 1))
        # A look brings a few threads of its own: those that BLAS would add get in each other's way.
        self._blas = threadpool_limits(None if self.revision is None else 1, "blas")
        self._measure, self._accept = _compile(config)

    def close(self) -> None:
        """Looks that nobody waits for any more are not begun."""
        self._threads.shutdown(cancel_futures=True)
        self._blas.restore_original_limits()

    def go_on_from(self, agent: AgentState) -> None:
        """Await what an agent awaited when it was saved."""
        if agent.awaited is not None:
            self.at = np.array(agent.awaited.at)

    def revise(
        self, agent: AgentState, replay: Replay, iteration: int, before: Counts, after: Counts
    ) -> AgentState:
        """The agent with all that counts from now on, and after it has begun what this iteration's segments
        made due; itself where there is neither."""
        agent = self._count(agent, iteration)
        looks, stale = self._due(iteration, before, after)
        if self.config.normalise and (looks | stale).any():
            # Whoever looks does so in the new units, and learns in the old ones until the look counts.
            agent = self._measure(agent, replay, stale & (~looks | (before == 0)), looks)
        if looks.any():
            agent = self._begin(agent, replay, iteration, np.flatnonzero(looks).tolist())
        return self._count(agent, iteration)

    def settled(self, agent: AgentState, lanes: Lanes | None = None) -> AgentState:
        """With the findings of the looks of some lanes, or of all, if need be after waiting for them."""
        looks = {lane: look for lane, look in self._looks.items() if lanes is None or lanes[lane]}
        if agent.awaited is None or not looks:
            return agent
        findings = agent.awaited.findings
        for lane, look in looks.items():
            findings = devices.with_lane(findings, lane, look.result())
        findings = devices.spread(findings, self.config.lanes)
        return agent._replace(awaited=agent.awaited._replace(findings=findings))

    def _due(self, iteration: int, before: Counts, after: Counts) -> tuple[Lanes, Lanes]:
        """Lanes that look, and lanes whose units are measured: none that still awaits something, each time
        its closed segments reach another one of first, first * growth, ... Of those in the warm-up one is
        enough, that counts when the updates begin."""
        schedule, revision, nobody = self.config.schedule, self.revision, np.zeros(len(after), np.bool_)

        def serves(iteration: int) -> bool:
            """Whether what begins now counts before the updates do, or later."""
            counts_at = iteration + (0 if revision is None else _delay(iteration))
            return iteration >= 0 and (counts_at + 2) * schedule.steps_per_iteration >= schedule.warmup_steps

        def due(first: float, growth: float) -> Lanes:
            new = reached(after, first, growth) > reached(before, first, growth) * serves(iteration - 1)
            return np.asarray((self.at == NOTHING) & serves(iteration) & new)

        return (
            nobody if revision is None else due(revision.first, revision.growth),
            due(scales.FIRST, scales.GROWTH) if self.config.normalise else nobody,
        )

    def _begin(self, agent: AgentState, replay: Replay, iteration: int, lanes: list[int]) -> AgentState:
        """Begin to look at many segments of some lanes, each in a thread of its own."""
        revision, segments = self.revision, jax.device_get(replay.segments)
        assert revision is not None
        assert agent.awaited is not None

        for lane in lanes:
            state, scaling = devices.one_lane((agent.method, agent.awaited.scaling), lane)
            # Now, for the training goes on to write into the replay.
            records = replays.records(replays.of_lane(replay, lane), revision.max_rows)
            self._looks[lane] = self._threads.submit(
                search, revision, state, scaling, records, int(segments[lane])
            )
        self.at[lanes] = iteration + _delay(iteration)
        at = devices.spread(jnp.asarray(self.at), self.config.lanes)
        return agent._replace(awaited=agent.awaited._replace(at=at))

    def _count(self, agent: AgentState, iteration: int) -> AgentState:
        """The agent with what counts after this iteration."""
        ready = self.at == iteration
        if not ready.any():
            return agent
        agent = self._accept(self.settled(agent, ready), ready)
        self.at[ready] = NOTHING
        self._looks = {lane: look for lane, look in self._looks.items() if not ready[lane]}
        return agent


def search(
    revision: Revision, state: State, scaling: Scaling | None, records: list[Record], count: int
) -> Findings:
    """What a method finds when it looks at many segments at once, in the units of one lane."""
    units = jax.device_get(scaling)
    seen = [scales.record(units, record) for record in (*revision.shown, *records)]
    return revision.look(state, seen, count)


def looked_at_once(
    revision: Revision, agent: AgentState, records: list[Record], count: int, lanes: int
) -> AgentState:
    """All lanes after a look at segments that they have in common, so that one is enough; for those who can
    wait for it."""
    state, scaling = devices.one_lane((agent.method, agent.scaling), 0)
    with threadpool_limits(1, "blas"):
        findings = search(revision, state, scaling, records, count)
    accepted = jax.jit(jax.vmap(revision.accept, in_axes=(0, None)))(agent.method, findings)
    return agent._replace(method=devices.spread(accepted, lanes))


def _compile(config: Config) -> list[Callable[..., AgentState]]:
    """What measures units, and what accepts findings, over all lanes."""
    programs = [partial(each, config.make_method()) for each in (measured, accepted)]
    return [devices.compiled(each, config.lanes, donate=(0,)) for each in programs]


def measured(
    method: Method, agent: AgentState, replay: Replay, now: Bool[Array, ""], later: Bool[Array, ""]
) -> AgentState:
    """One lane's agent with its units measured anew, for now or for when its look will count."""
    assert agent.scaling is not None
    moved, awaited = agents.measured(method, agent, replay), agent.awaited
    if awaited is not None:
        found = scales.measured(agent.scaling, replay)
        awaited = awaited._replace(scaling=choose(later, found, awaited.scaling))
    return choose(now, moved, agent)._replace(awaited=awaited)


def accepted(method: Method, agent: AgentState, ready: Bool[Array, ""]) -> AgentState:
    """One lane's agent with what it awaited, if that is ready."""
    awaited, revision, found = agent.awaited, method.revision, agent
    assert revision is not None
    assert awaited is not None
    if agent.scaling is not None and awaited.scaling is not None:
        now = agent.scaling  # what is known of rewards by now
        units = awaited.scaling._replace(
            reward_square=now.reward_square, level=now.level, returns=now.returns
        )
        found = agents.rescaled(method, agent, units)
    model = revision.accept(found.method, awaited.findings)
    nothing = awaited._replace(at=jnp.full_like(awaited.at, NOTHING))
    return choose(ready, found._replace(method=model, awaited=nothing), agent)


def _delay(iteration: int) -> int:
    """Iterations until what a look has found counts."""
    return (iteration + 1) // 10


def reached(segments: Counts, first: float, growth: float) -> Counts:
    """How many of first, first * growth, first * growth², ... have been reached."""
    ratio = np.maximum(segments / first, 1 / growth)
    return np.floor(np.log(ratio) / np.log(growth) + 1e-9).astype(np.int64) + 1
