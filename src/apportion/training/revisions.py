"""Looks at many segments at once: when they are due, what they measure, and the threads that take them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.types import Revision
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.settings import Config, Schedule

Counts = NDArray[np.int64]  # [L] closed segments


class Reviser:
    """Measures units anew, and lets the method look again, each time a lane's segments have grown enough."""

    def __init__(self, config: Config) -> None:
        self.schedule = config.schedule
        self.normalise = config.normalise
        self.revision = config.make_method().revision
        self._measure: Callable[..., AgentState] = devices.compiled(_measured, config.lanes, donate=(0,))

    def revise(
        self, agent: AgentState, replay: Replay, iteration: int, before: Counts, after: Counts
    ) -> AgentState:
        """The agent after all looks that this iteration's segments made due; itself where there are none."""
        if self.normalise:
            due = lanes_due(scales.FIRST, scales.GROWTH, self.schedule, iteration, before, after)
            if due:
                agent = self._measure(agent, replay, np.isin(np.arange(len(after)), due))
        if self.revision is not None:
            first, growth = self.revision.first, self.revision.growth
            due = lanes_due(first, growth, self.schedule, iteration, before, after)
            if due:
                agent = look(self.revision, agent, replay, due)
        return agent


def lanes_due(
    first: float, growth: float, schedule: Schedule, iteration: int, before: Counts, after: Counts
) -> list[int]:
    """Lanes whose number of closed segments has reached another one of first, first * growth, ...

    Of the looks that would fall into the warm-up, only the last is worth its time.
    """
    steps, warmup = schedule.steps_per_iteration, schedule.warmup_steps
    step = (iteration + 1) * steps
    seen = _reached(before, first, growth) if step >= warmup else np.zeros_like(before)
    due = _reached(after, first, growth) > seen
    return np.flatnonzero(due).tolist() if step + steps >= warmup else []


def look(revision: Revision, agent: AgentState, replay: Replay, lanes: list[int]) -> AgentState:
    """Let the method look at many segments of some lanes at once, each lane in a thread of its own."""
    segments = jax.device_get(replay.segments)

    def one(lane: int) -> Any:
        before = devices.one_lane(agent.method, lane)
        scaling = jax.device_get(devices.one_lane(agent.scaling, lane))
        records = replays.records(replays.of_lane(replay, lane), revision.max_rows)
        records = [scales.record(scaling, record) for record in (*revision.shown, *records)]
        return revision.revise(before, records, int(segments[lane]))

    method = agent.method
    # One thread for each look: those that BLAS would add get in each other's way.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(len(lanes), os.cpu_count() or 1)) as threads:
        for lane, after in zip(lanes, threads.map(one, lanes), strict=True):
            method = devices.with_lane(method, lane, after)
    return agent._replace(method=devices.spread(method, len(segments)))


def _measured(agent: AgentState, replay: Replay, due: Bool[Array, ""]) -> AgentState:
    """One lane's agent with its units measured anew, if it is due."""
    assert agent.scaling is not None
    scaling = jax.tree.map(
        lambda new, old: jnp.where(due, new, old), scales.measured(agent.scaling, replay), agent.scaling
    )
    return agent._replace(scaling=scaling)


def _reached(segments: Counts, first: float, growth: float) -> Counts:
    """How many of first, first * growth, first * growth², ... have been reached."""
    ratio = np.maximum(segments / first, 1 / growth)
    return np.floor(np.log(ratio) / np.log(growth) + 1e-9).astype(np.int64) + 1
