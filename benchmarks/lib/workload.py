"""The trainer's own compiled program, on made-up data of any size: what an update costs, without a task."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.make import EnvConfig
from apportion.methods import grd
from apportion.training import loop as train
from apportion.training.agent import AgentState
from apportion.training.presets import paper, preset
from apportion.training.settings import Config

EPISODE_STEPS = 1000  # of the paper's tasks


class Size(NamedTuple):
    states: int
    actions: int


# GRD as the paper has it: a model update with every policy update, edges by gradient alone.
PUBLISHED: grd.Config = paper(preset("", "grd", "sac")).method_config

SIZES = {"HalfCheetah": Size(17, 6), "Ant": Size(111, 8), "Humanoid": Size(376, 17)}


class Workload(NamedTuple):
    """A program and something to call it with. It takes agent and replay and gives back new ones."""

    program: Any  # train's `learn`, jitted
    updates: int  # in one call, in each lane
    lanes: int
    agent: AgentState  # [L, ...]
    replay: Replay  # [L, ...]
    chunk: Chunk  # [L, ...] nothing new, in the shapes that a training has
    origins: Any  # [L, 3] of the randomness
    all_lanes: Any  # [L] True: every lane learns, and is sound

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.agent, self.replay, *self.beside

    @property
    def beside(self) -> tuple[Any, ...]:
        """What the program takes besides agent and replay."""
        return self.chunk, self.origins, self.all_lanes, self.all_lanes


def made_up_spec(size: Size, steps: int = EPISODE_STEPS) -> Spec:
    """An environment that nobody plays: one payment per episode."""
    return Spec(
        env_id="made up",
        observation_names=tuple(f"s{i}" for i in range(size.states)),
        action_names=tuple(f"a{i}" for i in range(size.actions)),
        max_episode_steps=steps,
        max_segment_steps=steps,
    )


def settings(
    method: str,
    method_config: Any = None,
    *,
    backbone: str = "sac",
    lanes: int = 1,
    updates: int = 100,
    replay_steps: int = 20_000,
) -> Config:
    """A training with the method's default settings and so many updates (and steps) per iteration.

    The number of updates is rounded up to whole rounds of the method.
    """
    config = Config(EnvConfig("made up"), method, method_config, backbone, lanes=lanes)
    every = config.make_method().sampling.every
    updates = -(-updates // every) * every
    schedule = replace(
        config.schedule,
        steps_per_iteration=updates,
        updates_per_iteration=updates,
        replay_steps=replay_steps,
    )
    return replace(config, schedule=schedule)


def make(config: Config, spec: Spec) -> Workload:
    """Full replays of random numbers, and agents as they start."""
    agent, replay = train.start(config, spec)
    return _workload(config, spec, agent, _filled(replay, spec))


def shapes(config: Config, spec: Spec) -> Workload:
    """The same without the data: enough to count operations and to compile."""
    agent, replay = jax.eval_shape(lambda: train.start(config, spec))
    return _workload(config, spec, agent, replay)


def _workload(config: Config, spec: Spec, agent: AgentState, replay: Replay) -> Workload:
    schedule = config.schedule
    empty = made_up_chunk(spec, schedule.steps_per_iteration, np.random.default_rng(0), episodes=0)
    return Workload(
        program=train._compile(config, spec)[0],
        updates=schedule.updates_per_iteration,
        lanes=config.lanes,
        agent=agent,
        replay=replay,
        chunk=jax.tree.map(lambda x: jnp.broadcast_to(x, (config.lanes, *x.shape)), empty),
        origins=jnp.asarray(train._origins(config.seeds, train._UPDATE, 0)),
        all_lanes=jnp.ones(config.lanes, jnp.bool_),
    )


def made_up_chunk(spec: Spec, steps: int, rng: np.random.Generator, episodes: int) -> Chunk:
    """Random rows for `steps` steps, of which whole episodes are real: the rest is padding."""
    rows, length = 2 * steps + 1, spec.max_episode_steps
    first = np.arange(steps) * (length + 1)  # rows of an episode: its steps, and the last observation

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32))

    return Chunk(
        observation=normal(rows, spec.observation_size),
        action=jnp.tanh(normal(rows, spec.action_size)),
        paid=normal(rows),
        true_reward=normal(rows),
        terminated=jnp.zeros(rows, jnp.bool_),
        rows=jnp.asarray(episodes * (length + 1), jnp.int32),
        segment_start=jnp.asarray(first, jnp.int32),
        segment_length=jnp.full(steps, length, jnp.int32),
        segment_total=normal(steps),
        episode_start=jnp.asarray(first, jnp.int32),
        segments=jnp.asarray(episodes, jnp.int32),
    )


def _filled(replay: Replay, spec: Spec) -> Replay:
    """The same random episode over and over, in every lane, until the replay is full."""
    insert = jax.jit(jax.vmap(replays.insert, in_axes=(0, None)), donate_argnums=0)
    episode = made_up_chunk(spec, spec.max_episode_steps, np.random.default_rng(1), episodes=1)
    for _ in range(replay.paid.shape[1] // (spec.max_episode_steps + 1)):
        replay = insert(replay, episode)
    return replay
