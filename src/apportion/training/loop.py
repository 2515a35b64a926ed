"""Online training: environments act while all lanes learn, and each iteration yields a Snapshot.

One iteration = `steps_per_iteration` environment steps per lane, then `updates_per_iteration` updates, in one
jitted scan that is vmapped over lanes and split over the devices. All randomness is derived from a lane's
seed and the iteration's number, so a run can stop after any iteration and continue as if it never had.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, UInt32
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.core.files import free_bytes
from apportion.core.spec import Spec
from apportion.core.types import Metrics
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.faults import Faults
from apportion.envs.messages import Arrays
from apportion.envs.supervisor import Pool, default_workers
from apportion.nn.lanes import choose
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.evaluate import Evaluator, Report
from apportion.training.revisions import Reviser
from apportion.training.settings import Config, Schedule
from apportion.training.updates import Islands, keep_if_finite, key_from, updates, with_log_density

# --- Steps beside the updates: workers act with one policy while lanes learn from earlier steps


_Collected = tuple[Arrays, Chunk]  # what all lanes' environments did: on the host, [L, ...] on the devices


class Collector:
    """Keeps one chunk of steps ahead, brought by a thread of its own.

    Whoever launches updates, which on a GPU may take as long as they last, therefore waits neither for the
    actor nor for the environments.
    """

    def __init__(self, pool: Pool, schedule: Schedule) -> None:
        self.pool = pool
        self.schedule = schedule
        self.segments = np.zeros(pool.lanes, np.int64)  # closed so far, per lane
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Callable[[], _Collected]  # waits for the chunk ahead

    def begin(self, actor: dict[str, Array], iteration: int) -> None:
        """Let the environments act as soon as the actor is there; in this process, when somebody waits."""
        bring = partial(self._bring, actor, iteration)
        self._under_way = self._thread.submit(bring).result if self.pool.has_spare_workers else cache(bring)

    def go_on_from(self, pending: Arrays, segments: Any) -> None:
        """Start from a chunk that was collected before, after so many closed segments of each lane."""
        ahead = self._on_devices(pending)
        self._under_way = lambda: ahead
        self.segments += np.asarray(segments)

    def take(self) -> Chunk:
        """The chunk under way, as soon as it is there; from now on its segments count."""
        arrays, chunk = self._under_way()
        self.segments = self.segments + arrays["segments"]
        return chunk

    def wait(self) -> Arrays:
        """Until no chunk is under way, so that the workers can be asked for other things."""
        return self._under_way()[0]

    def close(self) -> None:
        """Without waiting: closing the pool dismisses who never answers, and so ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _bring(self, actor: dict[str, Array], iteration: int) -> _Collected:
        """At random while the steps still belong to the warm-up."""
        steps = self.schedule.steps_per_iteration
        random = iteration * steps < self.schedule.warmup_steps
        self.pool.start_chunk(None if random else jax.device_get(actor), steps, iteration)
        return self._on_devices(self.pool.finish_chunk())

    def _on_devices(self, arrays: Arrays) -> _Collected:
        fields: dict[str, Any] = arrays
        return arrays, devices.spread(Chunk(**fields), self.pool.lanes)


_INIT, _UPDATE, _EVALUATE = range(3)  # separate streams of randomness for one lane


# --- The loop


class Saved(NamedTuple):
    """All of a training's state, between two iterations."""

    iteration: int
    agent: AgentState  # [L, ...]
    replay: Replay  # [L, ...]
    pending: Arrays  # the chunk for the next iteration, already collected
    where: list[Arrays]  # where each lane's environment is
    faults: dict[str, Any]  # what went wrong in lanes so far, as Faults.to_dict says it


class Snapshot(NamedTuple):
    """What one iteration brought. Call `settle` and `save`, if at all, before asking for the next one."""

    iteration: int
    step: int
    metrics: Metrics  # [L] means over the iteration's updates, still being computed; none in warm-up
    sound: Bool[Array, "L"]  # False for lanes whose losses are no numbers any more; still being computed
    frozen: NDArray[np.bool_]  # [L] all lanes that stand still, as far as is known by now
    reports: list[Report]  # of evaluations that have ended since: of this step or of earlier ones
    settle: Callable[[], list[Report]]  # waits for the one under way; what is saved now would not bring it
    save: Callable[[], Saved]


def open_pool(config: Config, faults: dict[str, Any] | None = None) -> Pool:
    """The environments of a training; with the faults of one that goes on."""
    ledger = Faults(config.lanes, config.env.restarts, config.schedule.strict)
    if faults is not None:
        ledger.restore(faults)
    workers = config.schedule.workers
    if workers is None:
        workers = default_workers(config.lanes, learns_here=jax.default_backend() == "cpu")
    config.check_environment()
    return Pool(config.env, config.seeds, config.make_backbone().head, workers, ledger)


def start(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Fresh state of all lanes."""
    config.check_actions(spec)
    agent = _compile_init(config, spec)(_keys(_origins(config.seeds, _INIT, 0)))
    where = devices.sharding(config.lanes)
    replay = jax.tree.map(
        lambda x: jnp.zeros((config.lanes, *x.shape), x.dtype, device=where), _empty_replay(config, spec)
    )
    return devices.spread(agent, config.lanes), replay


def _empty_replay(config: Config, spec: Spec) -> Replay:
    """Of one lane."""
    schedule = config.schedule
    capacity = replays.capacity_for(spec, schedule.replay_steps, schedule.steps_per_iteration)
    return replays.init(spec, capacity, config.make_backbone().log_density is not None)


def _compile_init(config: Config, spec: Spec) -> Callable[[PRNGKeyArray], AgentState]:
    method, backbone = config.make_method(), config.make_backbone()

    def init(key: PRNGKeyArray) -> AgentState:
        clocks, returns = config.env.time_up != "pause", backbone.returns is not None
        scaling = scales.unknown(spec, clocks, returns) if config.normalise else None
        return agents.init(method, backbone, key, spec, scaling)

    return jax.jit(jax.vmap(init))


def online(config: Config, pool: Pool, saved: Saved | None = None) -> Iterator[Snapshot]:
    """Train, from the start or from where `saved` left off; yields after every iteration.

    To continue, the pool must be where it was: call `pool.put_back(saved.where)` first.
    """
    schedule, (learn, insert, actor_of) = config.schedule, _compile(config, pool.spec)
    overlap = schedule.overlap and config.make_backbone().log_density is None
    islands = Islands(pool.faults, config.lanes)
    with (
        closing(Reviser(config)) as reviser,
        closing(Collector(pool, schedule)) as collector,
        closing(Evaluator(config, pool, islands)) as evaluator,
    ):
        agent, replay, actor = _begin(config, collector, reviser, actor_of, saved)
        for iteration in range(0 if saved is None else saved.iteration, schedule.iterations):
            segments_before = collector.segments
            chunk = collector.take()
            step = (iteration + 1) * schedule.steps_per_iteration
            metrics: Metrics = {}
            origins = _origins(config.seeds, _UPDATE, iteration)
            if overlap:
                # The environments wait for the last iteration's actor, so at most two iterations are under
                # way. Before the updates: a GPU's host may launch them for as long as they take.
                collector.begin(actor, iteration + 1)
            # Units are measured when an iteration ends, so the first segments wait for the next one.
            ready = segments_before if config.normalise else collector.segments
            learns = islands.learning(iteration, ready)
            if step >= schedule.warmup_steps and np.any(learns):
                agent, replay, metrics, actor, sound = learn(
                    agent, replay, chunk, origins, learns, islands.sound
                )
                islands.updated(iteration, sound)
            else:
                replay = insert(agent, replay, chunk, origins)
            revised = reviser.revise(agent, replay, iteration, segments_before, collector.segments)
            if revised is not agent:
                agent = revised
                actor = actor_of(agent)  # units and mask follow: at once, as after a resume
            if not overlap:
                collector.begin(actor, iteration + 1)
            reports = _reports(config, evaluator, collector, iteration, (agent, replay, actor))
            yield Snapshot(
                iteration=iteration,
                step=step,
                metrics=metrics,
                sound=islands.sound,
                frozen=islands.frozen(iteration),
                reports=reports,
                settle=evaluator.wait,
                save=partial(_save, iteration + 1, agent, replay, collector, reviser, islands),
            )


def _begin(
    config: Config,
    collector: Collector,
    reviser: Reviser,
    actor_of: Callable[[AgentState], dict[str, Array]],
    saved: Saved | None,
) -> tuple[AgentState, Replay, dict[str, Array]]:
    """The state of all lanes and their actor's arrays, with the first chunk under way."""
    if saved is None:
        agent, replay = start(config, collector.pool.spec)
        actor = actor_of(agent)
        collector.begin(actor, 0)
        return agent, replay, actor
    collector.go_on_from(saved.pending, saved.replay.segments)
    reviser.go_on_from(saved.agent)
    agent, replay = devices.spread((saved.agent, saved.replay), config.lanes)
    return agent, replay, actor_of(agent)


def _reports(
    config: Config,
    evaluator: Evaluator,
    collector: Collector,
    iteration: int,
    now: tuple[AgentState, Replay, dict[str, Array]],
) -> list[Report]:
    """Of evaluations that have ended by the end of an iteration, where the next one begins if it is due."""
    reports, schedule = evaluator.done(), config.schedule
    if _evaluation_due(iteration, schedule):
        reports += evaluator.wait()
        if not collector.pool.has_spare_workers:
            collector.wait()
        keys = _keys(_origins(config.seeds, _EVALUATE, iteration))
        evaluator.begin(*now, keys, iteration, (iteration + 1) * schedule.steps_per_iteration)
    if iteration + 1 == schedule.iterations:
        reports += evaluator.wait()
    return reports


def _save(
    iteration: int,
    agent: AgentState,
    replay: Replay,
    collector: Collector,
    reviser: Reviser,
    islands: Islands,
) -> Saved:
    agent, pending = reviser.settled(agent), collector.wait()
    islands.settle()
    return Saved(iteration, agent, replay, pending, collector.pool.where(), islands.faults.to_dict())


class _Programs(NamedTuple):
    """The compiled functions of one training, each over all lanes."""

    learn: Callable[..., Any]  # from a chunk
    insert: Callable[..., Replay]  # a chunk, to learn from later
    actor: Callable[[AgentState], dict[str, Array]]  # the arrays that workers act by


def _compile(config: Config, spec: Spec) -> _Programs:
    method, backbone, schedule = config.make_method(), config.make_backbone(), config.schedule

    def insert(agent: AgentState, replay: Replay, chunk: Chunk, origin: UInt32[Array, "3"]) -> Replay:
        random = origin[2] * schedule.steps_per_iteration < schedule.warmup_steps
        return replays.insert(replay, with_log_density(method, backbone, spec, agent, chunk, random))

    def learn(
        agent: AgentState,
        replay: Replay,
        chunk: Chunk,
        origin: UInt32[Array, "3"],
        learns: Bool[Array, ""],
        sound: Bool[Array, ""],
    ) -> tuple[AgentState, Replay, Metrics, dict[str, Array], Bool[Array, ""]]:
        before, since = agent, replay.steps
        replay = insert(agent, replay, chunk, origin)
        agent = agents.surveyed(method, spec, agent, replay)
        credit = replay.credit
        agent, replay, metrics = updates(config, spec, agent, replay, since, key_from(origin))
        agent, metrics, sound = keep_if_finite(before, agent, metrics, learns, sound)
        if method.credit is not None:
            # Of a lane that does not learn, it came from a model that is not kept.
            replay = replay._replace(credit=choose(learns, replay.credit, credit))
        return agent, replay, metrics, actor(agent), sound

    def actor(agent: AgentState) -> dict[str, Array]:
        return agents.actor(method, backbone, agent, spec.observation_size)

    return _Programs(
        devices.compiled(learn, config.lanes, donate=(0, 1)),
        devices.compiled(insert, config.lanes, donate=(1,)),
        devices.compiled(actor, config.lanes),
    )


def _evaluation_due(iteration: int, schedule: Schedule) -> bool:
    """After every `evaluate_every` steps, and at the end."""
    before, after = iteration * schedule.steps_per_iteration, (iteration + 1) * schedule.steps_per_iteration
    crossed = after // schedule.evaluate_every > before // schedule.evaluate_every
    return crossed or iteration + 1 == schedule.iterations


def _origins(seeds: list[int], stream: int, iteration: int) -> NDArray[np.uint32]:
    """[L, 3]: what each lane's key is made from: its seed, the use it is for and the iteration. Programs that
    make the key themselves save a call."""
    return np.array([(seed, stream, iteration) for seed in seeds], np.uint32)


_keys = jax.jit(jax.vmap(key_from))


# --- What a training keeps in memory


def check_room(config: Config, spec: Spec) -> None:
    """Complain of replays that do not fit, before anything is allocated.

    Linux promises a processor's memory freely, and kills without a word who then takes more than there is.
    Other devices refuse by themselves.
    """
    need, taken, lower = _replays(config, spec)
    if jax.default_backend() == "cpu" and need > (free := free_bytes()):
        raise UserError(f"not enough memory: {taken}, and {free / 1e9:,.1f} GB are free. {lower}")


@contextmanager
def full_memory_explained(config: Config, spec: Spec, saved: Callable[[], str]) -> Iterator[None]:
    """Where memory runs out, say what takes most of it, how to take less, and what is saved."""
    check_room(config, spec)
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        # How XLA begins, by whichever class of errors it comes.
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _, taken, lower = _replays(config, spec)
        raise UserError(
            f"no memory is left on {jax.devices()[0].device_kind}: {taken}, agents and what updates compute "
            f"come on top. {lower}, or end what else uses the device. {saved()}"
        ) from error


def _replays(config: Config, spec: Spec) -> tuple[int, str, str]:
    """Bytes of all lanes, from shapes alone, for nothing is allocated; what takes them, and what to lower."""
    replay = jax.eval_shape(lambda: _empty_replay(config, spec))
    size = config.lanes * sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(replay))
    seeds = f"{config.lanes} seeds" if config.lanes > 1 else "one seed"
    taken = f"replays of {config.schedule.replay_steps:,} steps for {seeds} take {size / 1e9:,.1f} GB"
    return size, taken, "Lower --replay-steps" + (" or --seeds" if config.lanes > 1 else "")
