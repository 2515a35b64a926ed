"""TD3, Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018, Algorithm 1).

DDPG (Lillicrap et al., 2016, Algorithm 1), which it comes from, has one critic, no smoothing and no delay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    DeterministicConfig,
    act_with_noise,
    bellman_target,
    deterministic_loss,
    follow,
    init_deterministic,
    noisy_arrays,
    step_critics,
    values,
)
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(DeterministicConfig):
    """TD3: twin critics, smoothed targets, a deterministic actor that steps every second time."""

    smoothing_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions."""
    smoothing_clip: float = 0.5
    """The largest such noise."""
    actor_every: int = 2
    """Actor and target networks move at every so many updates of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("smoothing_noise", "smoothing_clip"):
            check(getattr(self, name) >= 0, f"backbone.{name}={getattr(self, name)} must not be negative")
        check(self.actor_every >= 1, f"backbone.actor_every={self.actor_every} must be at least 1")


@dataclass(frozen=True)
class DDPGConfig(DeterministicConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""


class State(NamedTuple):
    actor: MLP
    target_actor: MLP
    critics: MLP  # every array has a leading axis of J: two of them, one for DDPG
    target_critics: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made


def make_ddpg(config: DDPGConfig) -> Backbone:
    return make(Config(**vars(config), smoothing_noise=0.0, actor_every=1), critics=1)


def make(config: Config, critics: int = 2) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        return State(*init_deterministic(key, spec, critics, config), updates=jnp.asarray(0, jnp.int32))

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        state = state._replace(updates=state.updates + 1)
        state, critic_metrics = _update_critics(state, transitions, rewards, key, config)

        def loss(actor: MLP) -> Array:
            return deterministic_loss(actor, state.critics, transitions.observation)

        state, actor_metrics = step_actor(state, loss, config)
        return state, critic_metrics | actor_metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        return act_with_noise(state.actor, observation, key, explore, config.exploration_noise)

    def actor(state: State) -> dict[str, Array]:
        return noisy_arrays(state.actor, config.exploration_noise)

    return Backbone(init, update, act, actor, "tanh_noise", config.batch_size)


def smoothed_action(
    target_actor: MLP, observation: Float[Array, "B S"], key: PRNGKeyArray, noise: float, clip: float
) -> Float[Array, "B A"]:
    """Somewhere near the target actor's action: clip(tanh(μ'(s)) + clip(ε, ±c), ±1) with ε ~ N(0, noise²)."""
    action = jnp.tanh(target_actor(observation))
    if noise == 0:
        return action
    shift = jnp.clip(noise * jax.random.normal(key, action.shape), -clip, clip)
    return jnp.clip(action + shift, -1.0, 1.0)


def _update_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, config: Config
) -> tuple[State, Metrics]:
    next_observation = transitions.next_observation
    next_action = smoothed_action(
        state.target_actor, next_observation, key, config.smoothing_noise, config.smoothing_clip
    )
    next_values = jnp.min(values(state.target_critics, next_observation, next_action), axis=0)
    target = bellman_target(rewards, transitions.terminated, next_values, config.discount)
    critics, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
    state = state._replace(critics=critics, critic_optimiser=optimiser)
    return state, metrics | {"reward_mean": jnp.mean(rewards)}


def step_actor(
    state: State, loss: Callable[[MLP], Float[Array, ""]], config: Config
) -> tuple[State, Metrics]:
    """Every `actor_every`-th time the actor steps down a loss and all targets follow; else only the loss is
    measured."""

    def step() -> tuple[State, Array]:
        actor_loss, gradients = jax.value_and_grad(loss)(state.actor)
        actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
        moved = state._replace(
            actor=actor,
            target_actor=follow(state.target_actor, actor, config.polyak),
            target_critics=follow(state.target_critics, state.critics, config.polyak),
            actor_optimiser=optimiser,
        )
        return moved, actor_loss

    def wait() -> tuple[State, Array]:
        return state, loss(state.actor)

    due = state.updates % config.actor_every == 0
    state, actor_loss = step() if config.actor_every == 1 else jax.lax.cond(due, step, wait)
    return state, {"actor_loss": actor_loss}
