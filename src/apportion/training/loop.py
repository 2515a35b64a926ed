"""Online training: environments act while all lanes learn, and each iteration yields a Snapshot.

One iteration = `steps_per_iteration` environment steps per lane, then `updates_per_iteration` updates, in one
jitted scan that is vmapped over lanes and split over the devices. All randomness is derived from a lane's
seed and the iteration's number, so a run can stop after any iteration and continue as if it never had.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, UInt32
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.spec import Spec
from apportion.core.types import Metrics, Revision
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.wire import Arrays
from apportion.envs.workers import Pool, default_workers
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training.agent import AgentState
from apportion.training.evaluator import Evaluator, Report
from apportion.training.settings import Config, Schedule
from apportion.training.updates import updates

_INIT, _UPDATE, _EVALUATE = range(3)  # separate streams of randomness for one lane


class Saved(NamedTuple):
    """All of a training's state, between two iterations."""

    iteration: int
    agent: AgentState  # [L, ...]
    replay: Replay  # [L, ...]
    pending: Arrays  # the chunk for the next iteration, already collected
    where: list[Arrays]  # where each lane's environment is


class Snapshot(NamedTuple):
    """What one iteration brought. Call `settle` and `save`, if at all, before asking for the next one."""

    iteration: int
    step: int
    metrics: Metrics  # [L] means over the iteration's updates, still being computed; none in warm-up
    reports: list[Report]  # of evaluations that have ended since: of this step or of earlier ones
    settle: Callable[[], list[Report]]  # waits for the one under way; what is saved now would not bring it
    save: Callable[[], Saved]


def open_pool(config: Config) -> Pool:
    """The environments of a training."""
    workers = config.schedule.workers
    if workers is None:
        workers = default_workers(config.lanes, learns_here=jax.default_backend() == "cpu")
    return Pool(config.env, config.seeds, config.make_backbone().head, workers)


def start(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Fresh state of all lanes."""
    config.check_actions(spec)
    method, backbone = config.make_method(), config.make_backbone()
    keys = _lane_keys(config.seeds, _INIT, 0)
    agent = jax.jit(jax.vmap(lambda key: agents.init(method, backbone, key, spec)))(keys)
    schedule = config.schedule
    capacity = replays.capacity_for(spec, schedule.replay_steps, schedule.steps_per_iteration)
    replay = replays.init(spec, capacity)
    where = devices.sharding(config.lanes)
    replay = jax.tree.map(lambda x: jnp.zeros((config.lanes, *x.shape), x.dtype, device=where), replay)
    return devices.spread(agent, config.lanes), replay


def online(config: Config, pool: Pool, saved: Saved | None = None) -> Iterator[Snapshot]:
    """Train, from the start or from where `saved` left off; yields after every iteration.

    To continue, the pool must be where it was: call `pool.put_back(saved.where)` first.
    """
    schedule, method, programs = config.schedule, config.make_method(), _compile(config, pool.spec)
    with (
        closing(_Collector(pool, schedule, method.revision)) as collector,
        closing(Evaluator(config, pool)) as evaluator,
    ):
        if saved is None:
            agent, replay = start(config, pool.spec)
            actor = programs.actor(agent)
            collector.start(actor, 0)
        else:
            agent, replay = devices.spread((saved.agent, saved.replay), config.lanes)
            actor = programs.actor(agent)
            collector.go_on_from(saved)

        for iteration in range(0 if saved is None else saved.iteration, schedule.iterations):
            chunk = collector.take(iteration)
            step = (iteration + 1) * schedule.steps_per_iteration
            metrics: Metrics = {}
            if schedule.overlap:
                # The environments wait for the last iteration's actor, so at most two iterations are under
                # way. Before the updates: a GPU's host may launch them for as long as they take.
                collector.start(actor, iteration + 1)
            if step >= schedule.warmup_steps and collector.all_lanes_have_data:
                origins = _origins(config.seeds, _UPDATE, iteration)
                agent, replay, metrics, actor = programs.learn(agent, replay, chunk, origins)
            else:
                replay = programs.insert(replay, chunk)
            if method.revision is not None and collector.lanes_to_revise:
                agent = _revise(method.revision, agent, replay, collector.lanes_to_revise)
                actor = programs.actor(agent)  # its mask follows the edges: at once, as after a resume
            if not schedule.overlap:
                collector.start(actor, iteration + 1)

            reports = evaluator.done()
            if _evaluation_due(iteration, schedule):
                reports += evaluator.wait()
                if not pool.has_spare_workers:
                    collector.settle()
                keys = _lane_keys(config.seeds, _EVALUATE, iteration)
                evaluator.begin(agent, replay, actor, keys, iteration, step)
            if iteration + 1 == schedule.iterations:
                reports += evaluator.wait()
            yield Snapshot(
                iteration=iteration,
                step=step,
                metrics=metrics,
                reports=reports,
                settle=evaluator.wait,
                save=partial(collector.save, iteration + 1, agent, replay),
            )


class _Collected(NamedTuple):
    """What all lanes' environments did in one iteration."""

    arrays: Arrays  # of the chunk, on the host
    chunk: Chunk  # [L, ...] on the devices


class _Collector:
    """Keeps one chunk of steps ahead, brought by a thread of its own.

    So whoever launches updates, which on a GPU may take as long as they last, waits neither for the actor nor
    for the environments.
    """

    def __init__(self, pool: Pool, schedule: Schedule, revision: Revision | None) -> None:
        self.pool = pool
        self.schedule = schedule
        self.revision = revision
        self.lanes_to_revise: list[int] = []  # because the last chunk brought enough segments
        self.segments = np.zeros(pool.lanes, np.int64)  # closed so far, per lane
        self._thread = ThreadPoolExecutor(1)
        self._wait: Callable[[], _Collected]  # for the chunk ahead; set by `start` and `go_on_from`

    def close(self) -> None:
        """Without waiting: closing the pool dismisses who never answers, and so ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def all_lanes_have_data(self) -> bool:
        return bool(np.all(self.segments > 0))

    def start(self, actor: dict[str, Array], iteration: int) -> None:
        """Let the environments act as soon as the actor is there; those in this process, when it settles."""
        bring = partial(self._bring, actor, iteration)
        self._wait = self._thread.submit(bring).result if self.pool.has_spare_workers else cache(bring)

    def _bring(self, actor: dict[str, Array], iteration: int) -> _Collected:
        """At random while the steps still belong to the warm-up."""
        steps = self.schedule.steps_per_iteration
        random = iteration * steps < self.schedule.warmup_steps
        self.pool.start_chunk(None if random else jax.device_get(actor), steps, iteration)
        return self._on_devices(self.pool.finish_chunk())

    def _on_devices(self, arrays: Arrays) -> _Collected:
        fields: dict[str, Any] = arrays
        return _Collected(arrays, devices.spread(Chunk(**fields), self.pool.lanes))

    def settle(self) -> Arrays:
        """Wait until no chunk is under way, so that the workers can be asked for other things."""
        return self._wait().arrays

    def take(self, iteration: int) -> Chunk:
        arrays, chunk = self._wait()
        before, self.segments = self.segments, self.segments + arrays["segments"]
        if self.revision is not None:
            self.lanes_to_revise = self._due(self.revision, before, iteration)
        return chunk

    def _due(self, revision: Revision, before: NDArray[np.int64], iteration: int) -> list[int]:
        """Lanes with enough new segments; of the looks in warm-up, only the last is worth its time."""
        steps, warmup = self.schedule.steps_per_iteration, self.schedule.warmup_steps
        step = (iteration + 1) * steps
        seen = _looks(before, revision) if step >= warmup else np.zeros_like(before)
        due = _looks(self.segments, revision) > seen
        return np.flatnonzero(due).tolist() if step + steps >= warmup else []

    def save(self, iteration: int, agent: AgentState, replay: Replay) -> Saved:
        return Saved(iteration, agent, replay, self.settle(), self.pool.where())

    def go_on_from(self, saved: Saved) -> None:
        ahead = self._on_devices(saved.pending)
        self._wait = lambda: ahead
        self.segments += np.asarray(saved.replay.segments)


def _looks(segments: NDArray[np.int64], revision: Revision) -> NDArray[np.int64]:
    """How many of first, first * growth, first * growth², ... have been reached."""
    ratio = np.maximum(segments / revision.first, 1 / revision.growth)
    return np.floor(np.log(ratio) / np.log(revision.growth) + 1e-9).astype(np.int64) + 1


def _revise(revision: Revision, agent: AgentState, replay: Replay, lanes: list[int]) -> AgentState:
    """Let the method look at many segments of some lanes at once, each lane in a thread of its own."""
    segments = jax.device_get(replay.segments)

    def look(lane: int) -> Any:
        before = devices.one_lane(agent.method, lane)
        records = replays.records(replays.of_lane(replay, lane), revision.max_rows)
        return revision.revise(before, records, int(segments[lane]))

    method = agent.method
    # One thread for each look: those that BLAS would add get in each other's way.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(len(lanes), os.cpu_count() or 1)) as threads:
        for lane, after in zip(lanes, threads.map(look, lanes), strict=True):
            method = devices.with_lane(method, lane, after)
    return agent._replace(method=devices.spread(method, len(segments)))


class _Programs(NamedTuple):
    """The compiled functions of one training, each over all lanes."""

    learn: Callable[..., tuple[AgentState, Replay, Metrics, dict[str, Array]]]
    insert: Callable[[Replay, Chunk], Replay]
    actor: Callable[[AgentState], dict[str, Array]]


def _compile(config: Config, spec: Spec) -> _Programs:
    method, backbone = config.make_method(), config.make_backbone()

    def learn(
        agent: AgentState, replay: Replay, chunk: Chunk, origin: UInt32[Array, "3"]
    ) -> tuple[AgentState, Replay, Metrics, dict[str, Array]]:
        replay = replays.insert(replay, chunk)
        if method.survey is not None:
            looked = replays.survey(replay, spec.max_segment_steps)
            agent = agent._replace(method=method.survey(agent.method, looked))
        agent, replay, metrics = updates(config, spec, agent, replay, _key(origin))
        return agent, replay, metrics, actor(agent)

    def actor(agent: AgentState) -> dict[str, Array]:
        return agents.actor(method, backbone, agent)

    return _Programs(
        learn=devices.compiled(learn, config.lanes, donate=(0, 1)),
        insert=devices.compiled(replays.insert, config.lanes, donate=(0,)),
        actor=devices.compiled(actor, config.lanes),
    )


def _evaluation_due(iteration: int, schedule: Schedule) -> bool:
    """After every `evaluate_every` steps, and at the end."""
    before, after = iteration * schedule.steps_per_iteration, (iteration + 1) * schedule.steps_per_iteration
    crossed = after // schedule.evaluate_every > before // schedule.evaluate_every
    return crossed or iteration + 1 == schedule.iterations


def _lane_keys(seeds: list[int], stream: int, iteration: int) -> PRNGKeyArray:
    """One key per lane, from its seed, the use it is for and the iteration."""
    return _keys(_origins(seeds, stream, iteration))


def _origins(seeds: list[int], stream: int, iteration: int) -> NDArray[np.uint32]:
    """[L, 3]: what each lane's key is made from, for programs that make it themselves: one call less."""
    return np.array([(seed, stream, iteration) for seed in seeds], np.uint32)


def _key(origin: UInt32[Array, "3"]) -> PRNGKeyArray:
    seed, stream, iteration = origin
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), iteration)


_keys = jax.jit(jax.vmap(_key))
