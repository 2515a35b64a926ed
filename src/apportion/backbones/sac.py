"""SAC, Soft Actor-Critic (Haarnoja et al., 2018): twin critics, tanh-Gaussian actor, learned temperature."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    CommonConfig,
    arrays,
    bellman_target,
    follow,
    init_critics,
    step_critics,
    values,
)
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class Config(CommonConfig):
    """SAC: twin critics, tanh-Gaussian actor, learned temperature."""

    initial_temperature: float = 1.0
    """Entropy temperature at the start."""
    target_entropy: float | None = None
    """The entropy the temperature aims at; minus the number of actions when not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.initial_temperature > 0, "backbone.initial_temperature must be positive")


class State(NamedTuple):
    actor: MLP
    critics: MLP  # two of them: every array has a leading axis of 2
    target_critics: MLP
    log_temperature: Float[Array, ""]
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    temperature_optimiser: Optimiser


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor = MLP.init(actor_key, (states, *config.hidden, 2 * actions))
        critics = init_critics(critic_key, 2, states + actions, config.hidden)
        log_temperature = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
        return State(
            actor=actor,
            critics=critics,
            target_critics=jax.tree.map(jnp.copy, critics),
            log_temperature=log_temperature,
            actor_optimiser=optimise.start(actor, config.learning_rate),
            critic_optimiser=optimise.start(critics, config.learning_rate),
            temperature_optimiser=optimise.start(log_temperature, config.learning_rate),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        target_key, actor_key = jax.random.split(key)
        state, critic_metrics = _update_critics(state, transitions, rewards, target_key, config)
        state, entropy, actor_metrics = _update_actor(state, transitions, actor_key)
        state, temperature_metrics = _update_temperature(state, entropy, _target_entropy(transitions))
        return state, critic_metrics | actor_metrics | temperature_metrics

    def _target_entropy(transitions: Transitions) -> float:
        actions = transitions.action.shape[-1]
        return -float(actions) if config.target_entropy is None else config.target_entropy

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        mean, log_std = policy(state.actor, observation)
        noise = jax.random.normal(key, mean.shape) if explore else jnp.zeros_like(mean)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def actor(state: State) -> dict[str, Array]:
        return arrays(state.actor)

    return Backbone(init, update, act, actor, "tanh_gaussian", config.batch_size)


def policy(
    actor: MLP, observation: Float[Array, "*B S"]
) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
    """Mean and log standard deviation of the Gaussian before the tanh."""
    mean, log_std = jnp.split(actor(observation), 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def sample_action(
    actor: MLP, observation: Float[Array, "B S"], key: PRNGKeyArray
) -> tuple[Float[Array, "B A"], Float[Array, "B"]]:
    """An action a = tanh(u), u Gaussian, and its log density log N(u) - Σ log(1 - tanh(u)²)."""
    mean, log_std = policy(actor, observation)
    noise = jax.random.normal(key, mean.shape)
    before_tanh = mean + jnp.exp(log_std) * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), which stays finite for large |u|.
    squash = 2 * (math.log(2) - before_tanh - jax.nn.softplus(-2 * before_tanh))
    return jnp.tanh(before_tanh), jnp.sum(gaussian - squash, axis=-1)


def _update_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, config: Config
) -> tuple[State, Metrics]:
    next_action, next_log_density = sample_action(state.actor, transitions.next_observation, key)
    next_values = jnp.min(values(state.target_critics, transitions.next_observation, next_action), axis=0)
    soft_values = next_values - jnp.exp(state.log_temperature) * next_log_density
    target = bellman_target(rewards, transitions.terminated, soft_values, config.discount)

    critics, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
    targets = follow(state.target_critics, critics, config.polyak)
    state = state._replace(critics=critics, target_critics=targets, critic_optimiser=optimiser)
    return state, metrics | {"reward_mean": jnp.mean(rewards)}


def _update_actor(
    state: State, transitions: Transitions, key: PRNGKeyArray
) -> tuple[State, Float[Array, ""], Metrics]:
    def loss(actor: MLP) -> tuple[Array, Array]:
        action, log_density = sample_action(actor, transitions.observation, key)
        lowest = jnp.min(values(state.critics, transitions.observation, action), axis=0)
        return jnp.mean(jnp.exp(state.log_temperature) * log_density - lowest), -jnp.mean(log_density)

    (actor_loss, entropy), gradients = jax.value_and_grad(loss, has_aux=True)(state.actor)
    actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
    state = state._replace(actor=actor, actor_optimiser=optimiser)
    return state, entropy, {"actor_loss": actor_loss, "entropy": entropy}


def _update_temperature(
    state: State, entropy: Float[Array, ""], target_entropy: float
) -> tuple[State, Metrics]:
    gradient = jax.grad(lambda log_temperature: jnp.exp(log_temperature) * (entropy - target_entropy))(
        state.log_temperature
    )
    log_temperature, optimiser = optimise.step(state.temperature_optimiser, state.log_temperature, gradient)
    state = state._replace(log_temperature=log_temperature, temperature_optimiser=optimiser)
    return state, {"temperature": jnp.exp(log_temperature)}
