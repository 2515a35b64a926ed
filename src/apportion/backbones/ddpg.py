"""DDPG, Deep Deterministic Policy Gradient (Lillicrap et al., 2016, Algorithm 1)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    Deterministic,
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
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise

State = Deterministic  # with one critic


@dataclass(frozen=True)
class Config(DeterministicConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        return init_deterministic(key, spec, 1, config)

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        del key  # nothing here is drawn at random
        state, critic_metrics = _update_critic(state, transitions, rewards, config)
        state, actor_metrics = _update_actor(state, transitions, config)
        return state, critic_metrics | actor_metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        return act_with_noise(state.actor, observation, key, explore, config.exploration_noise)

    def actor(state: State) -> dict[str, Array]:
        return noisy_arrays(state.actor, config.exploration_noise)

    return Backbone(init, update, act, actor, "tanh_noise", config.batch_size)


def _update_critic(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], config: Config
) -> tuple[State, Metrics]:
    next_action = jnp.tanh(state.target_actor(transitions.next_observation))
    next_values = values(state.target_critics, transitions.next_observation, next_action)[0]
    target = bellman_target(rewards, transitions.terminated, next_values, config.discount)
    critic, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
    targets = follow(state.target_critics, critic, config.polyak)
    state = state._replace(critics=critic, target_critics=targets, critic_optimiser=optimiser)
    return state, metrics | {"reward_mean": jnp.mean(rewards)}


def _update_actor(state: State, transitions: Transitions, config: Config) -> tuple[State, Metrics]:
    actor_loss, gradients = jax.value_and_grad(deterministic_loss)(
        state.actor, state.critics, transitions.observation
    )
    actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
    targets = follow(state.target_actor, actor, config.polyak)
    state = state._replace(actor=actor, target_actor=targets, actor_optimiser=optimiser)
    return state, {"actor_loss": actor_loss}
