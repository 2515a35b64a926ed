"""TD3, Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018): targets are smoothed
by noise on the target actor's actions, and the actor steps less often than critics. ReBRAC stands on it too.

DDPG (Lillicrap et al., 2016, Algorithm 1), which it comes from, has one critic, no smoothing and no delay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    TargetConfig,
    arrays,
    bellman_target,
    follow,
    init_critics,
    step_critics,
    values,
)
from apportion.core.config import at_least
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class DDPGConfig(TargetConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions while collecting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "backbone.", exploration_noise=0)


@dataclass(frozen=True)
class Config(DDPGConfig):
    """TD3: twin critics, smoothed targets, a deterministic actor that steps every second time."""

    smoothing_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions."""
    smoothing_clip: float = 0.5
    """The largest such noise."""
    actor_every: int = 2
    """Actor and target networks move at every so many updates of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "backbone.", smoothing_noise=0, smoothing_clip=0, actor_every=1)


class State(NamedTuple):
    actor: MLP
    target_actor: MLP
    critics: MLP  # every array has a leading axis of J: two of them, one for DDPG
    target_critics: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made


NextValues = Callable[[State, Transitions, Float[Array, "B A"]], Float[Array, "B"]]  # of what is done next
ActorLoss = Callable[[MLP, MLP, Transitions], Float[Array, ""]]  # of an actor, and the critics that judge it


def make_ddpg(config: DDPGConfig) -> Backbone:
    return make(Config(**vars(config), smoothing_noise=0.0, actor_every=1), critics=1)


def make(config: Config, critics: int = 2) -> Backbone:
    return build(config, lower_values, deterministic_loss, critics)


def build(
    config: Config,
    next_values: NextValues,
    actor_loss: ActorLoss,
    critics: int = 2,
    critic: type[MLP] = MLP,
    offline: bool = False,
) -> Backbone:
    """A deterministic actor-critic: what its critics expect after a step, and what its actor descends."""

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor = MLP.init(actor_key, (states, *config.hidden, actions))
        judges = init_critics(critic_key, critics, states + actions, config.hidden, kind=critic)
        return State(
            actor=actor,
            target_actor=jax.tree.map(jnp.copy, actor),
            critics=judges,
            target_critics=jax.tree.map(jnp.copy, judges),
            actor_optimiser=optimise.start(actor, config.learning_rate),
            critic_optimiser=optimise.start(judges, config.learning_rate),
            updates=jnp.asarray(0, jnp.int32),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        noise, clip = config.smoothing_noise, config.smoothing_clip
        action = smoothed_action(state.target_actor, transitions.next_observation, key, noise, clip)
        after = next_values(state, transitions, action)
        target = bellman_target(rewards, transitions.terminated, after, config.discount)
        critics, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
        state = state._replace(critics=critics, critic_optimiser=optimiser, updates=state.updates + 1)
        state, loss = step_actor(state, lambda actor: actor_loss(actor, critics, transitions), config)
        return state, metrics | {"actor_loss": loss, "reward_mean": jnp.mean(rewards)}

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        action = jnp.tanh(state.actor(observation))
        if not explore:
            return action
        noise = config.exploration_noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1.0, 1.0)

    def actor(state: State) -> dict[str, Array]:
        return arrays(state.actor) | {"noise": jnp.asarray(config.exploration_noise, jnp.float32)}

    return Backbone(init, update, act, actor, "tanh_noise", config.batch_size, offline=offline)


def lower_values(
    state: State, transitions: Transitions, next_action: Float[Array, "B A"]
) -> Float[Array, "B"]:
    """min_j Q'_j(s', a')."""
    return jnp.min(values(state.target_critics, transitions.next_observation, next_action), axis=0)


def deterministic_loss(actor: MLP, critics: MLP, transitions: Transitions) -> Float[Array, ""]:
    """- mean Q_1(s, tanh(μ(s))): of several critics only the first teaches the actor."""
    first = jax.tree.map(lambda array: array[:1], critics)
    return -jnp.mean(values(first, transitions.observation, jnp.tanh(actor(transitions.observation))))


def smoothed_action(
    target_actor: MLP, observation: Float[Array, "B S"], key: PRNGKeyArray, noise: float, clip: float
) -> Float[Array, "B A"]:
    """Somewhere near the target actor's action: clip(tanh(μ'(s)) + clip(ε, ±c), ±1) with ε ~ N(0, noise²)."""
    action = jnp.tanh(target_actor(observation))
    if noise == 0:
        return action
    shift = jnp.clip(noise * jax.random.normal(key, action.shape), -clip, clip)
    return jnp.clip(action + shift, -1.0, 1.0)


def step_actor(
    state: State, loss: Callable[[MLP], Float[Array, ""]], config: Config
) -> tuple[State, Float[Array, ""]]:
    """Every `actor_every`-th time the actor steps down a loss and all targets follow; else only the loss is
    measured."""

    def step() -> tuple[State, Array]:
        actor, optimiser, actor_loss = optimise.descend(state.actor_optimiser, state.actor, loss)
        moved = state._replace(
            actor=actor,
            target_actor=follow(state.target_actor, actor, config.polyak),
            target_critics=follow(state.target_critics, state.critics, config.polyak),
            actor_optimiser=optimiser,
        )
        return moved, actor_loss

    due = state.updates % config.actor_every == 0
    return step() if config.actor_every == 1 else jax.lax.cond(due, step, lambda: (state, loss(state.actor)))
