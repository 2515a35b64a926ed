"""The update of Soft Actor-Critic (Haarnoja et al., 2018), for networks of any kind: SAC's and SimBa's."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    Network,
    StochasticConfig,
    TargetConfig,
    act_by_chance,
    bellman_target,
    follow,
    sample_action,
    step_critics,
    step_temperature,
    values,
)
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class SoftConfig(StochasticConfig, TargetConfig):
    """The settings of backbones that learn by this update."""

    critic_learning_rate: float | None = None
    """Adam's step for the critics; `learning_rate` when not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.critic_learning_rate
        check(rate is None or rate > 0, f"backbone.critic_learning_rate={rate} must be positive")

    @property
    def critic_rate(self) -> float:
        return self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate


class State(NamedTuple):
    actor: Network
    critics: Network  # two of them: every array has a leading axis of 2
    target_critics: Network
    log_temperature: Float[Array, ""]
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    temperature_optimiser: Optimiser


def make_soft(
    config: SoftConfig,
    networks: Callable[[PRNGKeyArray, Spec], tuple[Network, Network]],  # an actor and two critics
    named: Callable[[Any], dict[str, Array]],  # the actor's arrays under the names of envs.acting
    weight_decay: float | None = None,  # of actor and critics
) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor, critics = networks(key, spec)
        log_temperature = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
        return State(
            actor=actor,
            critics=critics,
            target_critics=jax.tree.map(jnp.copy, critics),
            log_temperature=log_temperature,
            actor_optimiser=optimise.start(actor, config.learning_rate, weight_decay),
            critic_optimiser=optimise.start(critics, config.critic_rate, weight_decay),
            temperature_optimiser=optimise.start(log_temperature, config.learning_rate),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        target_key, actor_key = jax.random.split(key)
        state, critic_metrics = update_critics(state, transitions, rewards, target_key, config)
        state, entropy, actor_metrics = update_actor(state, transitions, actor_key, config)
        target_entropy = config.entropy_for(transitions.action.shape[-1])
        state, temperature_metrics = update_temperature(state, entropy, target_entropy)
        return state, critic_metrics | actor_metrics | temperature_metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        return act_by_chance(state.actor(observation), key, explore)

    def actor(state: State) -> dict[str, Array]:
        return named(state.actor)

    return Backbone(init, update, act, actor, "tanh_gaussian", config.batch_size)


def update_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, config: SoftConfig
) -> tuple[State, Metrics]:
    next_action, next_log_density = sample_action(state.actor(transitions.next_observation), key)
    next_values = config.pooled(values(state.target_critics, transitions.next_observation, next_action))
    soft_values = next_values - jnp.exp(state.log_temperature) * next_log_density
    target = bellman_target(rewards, transitions.terminated, soft_values, config.discount)

    critics, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
    targets = follow(state.target_critics, critics, config.polyak)
    state = state._replace(critics=critics, target_critics=targets, critic_optimiser=optimiser)
    return state, metrics | {"reward_mean": jnp.mean(rewards)}


def update_actor(
    state: State, transitions: Transitions, key: PRNGKeyArray, config: SoftConfig
) -> tuple[State, Float[Array, ""], Metrics]:
    def loss(actor: Network) -> tuple[Array, Array]:
        action, log_density = sample_action(actor(transitions.observation), key)
        worth = config.pooled(values(state.critics, transitions.observation, action))
        return jnp.mean(jnp.exp(state.log_temperature) * log_density - worth), -jnp.mean(log_density)

    (actor_loss, entropy), gradients = jax.value_and_grad(loss, has_aux=True)(state.actor)
    actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
    state = state._replace(actor=actor, actor_optimiser=optimiser)
    return state, entropy, {"actor_loss": actor_loss, "entropy": entropy}


def update_temperature(
    state: State, entropy: Float[Array, ""], target_entropy: float
) -> tuple[State, Metrics]:
    log_temperature, optimiser = step_temperature(
        state.log_temperature, state.temperature_optimiser, entropy, target_entropy
    )
    state = state._replace(log_temperature=log_temperature, temperature_optimiser=optimiser)
    return state, {"temperature": jnp.exp(log_temperature)}
