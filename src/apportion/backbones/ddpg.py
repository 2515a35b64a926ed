"""DDPG, Deep Deterministic Policy Gradient (Lillicrap et al., 2016, Algorithm 1)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    CommonConfig,
    act_with_noise,
    arrays,
    bellman_target,
    deterministic_loss,
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


@dataclass(frozen=True)
class Config(CommonConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions while collecting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self.exploration_noise
        check(noise >= 0, f"backbone.exploration_noise={noise} must not be negative")


class State(NamedTuple):
    actor: MLP
    target_actor: MLP
    critic: MLP  # every array has a leading axis of 1: the critics of actor_critic, but one
    target_critic: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor = MLP.init(actor_key, (states, *config.hidden, actions))
        critic = init_critics(critic_key, 1, states + actions, config.hidden)
        return State(
            actor=actor,
            target_actor=jax.tree.map(jnp.copy, actor),
            critic=critic,
            target_critic=jax.tree.map(jnp.copy, critic),
            actor_optimiser=optimise.start(actor, config.learning_rate),
            critic_optimiser=optimise.start(critic, config.learning_rate),
        )

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
        return arrays(state.actor) | {"noise": jnp.asarray(config.exploration_noise, jnp.float32)}

    return Backbone(init, update, act, actor, "tanh_noise", config.batch_size)


def _update_critic(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], config: Config
) -> tuple[State, Metrics]:
    next_action = jnp.tanh(state.target_actor(transitions.next_observation))
    next_values = values(state.target_critic, transitions.next_observation, next_action)[0]
    target = bellman_target(rewards, transitions.terminated, next_values, config.discount)
    critic, optimiser, metrics = step_critics(state.critic, state.critic_optimiser, transitions, target)
    targets = follow(state.target_critic, critic, config.polyak)
    state = state._replace(critic=critic, target_critic=targets, critic_optimiser=optimiser)
    return state, metrics | {"reward_mean": jnp.mean(rewards)}


def _update_actor(state: State, transitions: Transitions, config: Config) -> tuple[State, Metrics]:
    actor_loss, gradients = jax.value_and_grad(deterministic_loss)(
        state.actor, state.critic, transitions.observation
    )
    actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
    targets = follow(state.target_actor, actor, config.polyak)
    state = state._replace(actor=actor, target_actor=targets, actor_optimiser=optimiser)
    return state, {"actor_loss": actor_loss}
