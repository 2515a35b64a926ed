"""Evaluations beside the training: spare workers play one moment's policy while the lanes learn on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.core.types import Method, State
from apportion.data.replay import Replay
from apportion.envs.wire import Arrays
from apportion.envs.workers import Pool
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training.agent import AgentState
from apportion.training.evaluate import (
    Evaluation,
    Redistribute,
    judge,
    make_redistribute,
    replay_correlation,
)
from apportion.training.islands import Islands
from apportion.training.settings import Config


class Report(NamedTuple):
    """An evaluation, and what the model believed at that moment."""

    step: int
    evaluation: Evaluation
    edges: dict[
        str, NDArray[np.float32]
    ]  # [L, ...] edge probabilities, and doubts of them; none without a graph
    policy_mask: NDArray[np.float32]  # [L, S]
    agent: AgentState  # [L, ...] as it was, on the host
    frozen: NDArray[np.bool_]  # [L] lanes that stood still


class _Moment(NamedTuple):
    """All that an evaluation needs of the training, which meanwhile goes on; on the host."""

    iteration: int
    step: int
    agent: AgentState  # [L, ...]
    actor: Arrays  # [L, ...]
    correlation: NDArray[np.float32]  # [L]
    edges: dict[str, NDArray[np.float32]]  # [L, ...]
    frozen: NDArray[np.bool_]  # [L]


class _Programs(NamedTuple):
    """What an evaluation computes, over all lanes. Nothing of it depends on the backbone."""

    redistribute: Redistribute
    correlate: Callable[..., Array]
    edges: Callable[..., dict[str, Array]]


def _compile(config: Config, spec: Spec) -> _Programs:
    method = agents.in_own_units(config.make_method())
    return _Programs(
        redistribute=make_redistribute(method, spec),
        correlate=devices.compiled(partial(replay_correlation, method), config.lanes),
        edges=devices.compiled(partial(beliefs, method), config.lanes),
    )


class Evaluator:
    """Takes one evaluation at a time. Its reports do not depend on when they are asked for."""

    def __init__(self, config: Config, pool: Pool, islands: Islands) -> None:
        self.pool = pool
        self.islands = islands
        self.episodes = config.schedule.evaluation_episodes
        self._programs = _compile(config, pool.spec)
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[Report] | None = None

    def begin(
        self,
        agent: AgentState,
        replay: Replay,
        actor: dict[str, Array],
        keys: PRNGKeyArray,
        iteration: int,
        step: int,
    ) -> None:
        """Start to evaluate the agent as it is now; call `wait` first."""
        assert self._under_way is None
        model = agent._replace(backbone=None)
        parts = (agent, actor, self._programs.correlate(model, replay, keys), self._programs.edges(model))
        agent, arrays, correlation, edges = jax.device_get(parts)
        self.islands.settle()
        frozen = self.islands.frozen(iteration)
        moment = _Moment(iteration, step, agent, arrays, correlation, edges, frozen)
        self._under_way = self._thread.submit(self._report, moment)
        if not self.pool.has_spare_workers:
            self._under_way.exception()  # until it is done

    def done(self) -> list[Report]:
        """The report of the evaluation under way, if it has ended."""
        return self.wait() if self._under_way is not None and self._under_way.done() else []

    def wait(self) -> list[Report]:
        """The report of the evaluation under way, if there is one, as soon as it ends."""
        ended, self._under_way = self._under_way, None
        return [] if ended is None else [ended.result()]

    def _report(self, moment: _Moment) -> Report:
        absent = np.flatnonzero(moment.frozen).tolist()
        episodes = self.pool.episodes(
            moment.actor, moment.iteration, self.episodes, beside_training=True, absent=absent
        )
        redistributed: list[list[NDArray[np.float32]]] = [[] for _ in episodes]
        if any(episodes):
            redistributed = self._programs.redistribute(moment.agent._replace(backbone=None), episodes)
        return Report(
            step=moment.step,
            evaluation=judge(episodes, redistributed, moment.correlation),
            edges=moment.edges,
            policy_mask=moment.actor["mask"],
            agent=moment.agent,
            frozen=moment.frozen,
        )

    def close(self) -> None:
        """When the evaluation under way has ended."""
        self._thread.shutdown(cancel_futures=True)


def beliefs(method: Method, state: State) -> dict[str, Array]:
    """What one lane's model says of the graph, and what speaks against it."""
    edges = {} if method.edges is None else method.edges(state)._asdict()
    return edges if method.doubts is None else {**edges, "doubts": method.doubts(state)}
