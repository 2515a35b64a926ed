"""TD3, Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018, Algorithm 1).

DDPG (Lillicrap et al., 2016, Algorithm 1), which it comes from, has one critic, no smoothing and no delay.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    DeterministicConfig,
    act_with_noise,
    bellman_target,
    deterministic_loss,
    init_deterministic,
    noisy_arrays,
    step_critics,
    values,
)
from apportion.backbones.deterministic import SmoothedConfig, State, smoothed_action, step_actor
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(SmoothedConfig):
    """TD3: twin critics, smoothed targets, a deterministic actor that steps every second time."""


@dataclass(frozen=True)
class DDPGConfig(DeterministicConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""


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
