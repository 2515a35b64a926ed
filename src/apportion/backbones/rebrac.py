"""ReBRAC, Revisited Behavior Regularized Actor-Critic (Tarasov et al., 2023): TD3 with layer norms in the
critics, held near logged actions in both actor and critics (TD3+BC, Fujimoto and Gu, 2021)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import (
    act_with_noise,
    bellman_target,
    init_deterministic,
    noisy_arrays,
    step_critics,
    values,
)
from apportion.backbones.deterministic import SmoothedConfig, State, smoothed_action, step_actor
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn.networks import MLP, NormedMLP


@dataclass(frozen=True)
class Config(SmoothedConfig):
    """ReBRAC, from logged episodes alone: TD3 that pays for leaving logged actions. Continuous actions."""

    actor_penalty: float = 0.1
    """Of the squared distance from the logged action, in the actor's loss, where values are of size one."""
    critic_penalty: float = 0.05
    """Of the same distance after the step, in the critics' target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actor_penalty", "critic_penalty"):
            check(getattr(self, name) >= 0, f"backbone.{name}={getattr(self, name)} must not be negative")


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        learned = init_deterministic(key, spec, 2, config, NormedMLP)
        return State(*learned, updates=jnp.asarray(0, jnp.int32))

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        state = state._replace(updates=state.updates + 1)
        next_values = penalised_values(state, transitions, key, config)
        target = bellman_target(rewards, transitions.terminated, next_values, config.discount)
        critics, optimiser, metrics = step_critics(state.critics, state.critic_optimiser, transitions, target)
        state = state._replace(critics=critics, critic_optimiser=optimiser)

        def loss(actor: MLP) -> Array:
            return actor_loss(actor, critics, transitions, config.actor_penalty)

        state, actor_metrics = step_actor(state, loss, config)
        return state, metrics | actor_metrics | {"reward_mean": jnp.mean(rewards)}

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        return act_with_noise(state.actor, observation, key, explore, config.exploration_noise)

    def actor(state: State) -> dict[str, Array]:
        return noisy_arrays(state.actor, config.exploration_noise)

    return Backbone(init, update, act, actor, "tanh_noise", config.batch_size, offline=True)


def penalised_values(
    state: State, transitions: Transitions, key: PRNGKeyArray, config: Config
) -> Float[Array, "B"]:
    """min_j Q'_j(s', a') - β₂ ‖a' - â'‖², with a' near the target actor's action and â' the logged next one.
    Where that is not known nothing is taken off."""
    after = transitions.next_observation
    action = smoothed_action(state.target_actor, after, key, config.smoothing_noise, config.smoothing_clip)
    found = jnp.min(values(state.target_critics, after, action), axis=0)
    if transitions.next_action is None:
        return found
    return found - config.critic_penalty * jnp.sum((action - transitions.next_action) ** 2, axis=-1)


def actor_loss(actor: MLP, critics: MLP, transitions: Transitions, penalty: float) -> Float[Array, ""]:
    """mean (β₁ ‖π(s) - a‖² - min_j Q_j(s, π(s)) / mean |Q|)."""
    action = jnp.tanh(actor(transitions.observation))
    found = jnp.min(values(critics, transitions.observation, action), axis=0)
    size = jax.lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(found)), 1e-6))
    return jnp.mean(penalty * jnp.sum((action - transitions.action) ** 2, axis=-1) - found / size)
