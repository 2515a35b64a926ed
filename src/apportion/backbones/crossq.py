"""CrossQ (Bhatt et al., 2024): SAC with batch renormalisation, wide critics, and no target networks."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    StochasticConfig,
    act_by_chance,
    arrays,
    bellman_target,
    check_layers,
    sample_action,
    step_temperature,
    values,
)
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.lanes import choose, in_any_lane
from apportion.nn.optimise import Optimiser
from apportion.nn.renorm import RenormMLP, Statistics


@dataclass(frozen=True)
class Config(StochasticConfig):
    """CrossQ: SAC with batch renormalisation and wide critics, without target networks."""

    learning_rate: float = 1e-3
    """Adam's step for all that is learned."""
    critic_hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of each critic (2048 2048 as published); `hidden` are those of the actor."""
    actor_every: int = 3
    """Actor and temperature step at every so many updates of the critics."""
    momentum: float = 0.5
    """Adam's β₁, for actor and critics."""
    statistics_rate: float = 0.01
    """How far each batch moves the running statistics."""
    renorm_after: int = 100_000
    """Batches that are normalised by themselves alone, before running statistics have a say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.statistics_rate
        check_layers("critic_hidden", self.critic_hidden)
        check(self.batch_size >= 2, f"backbone.batch_size={self.batch_size} must be at least 2 for crossq")
        check(self.actor_every >= 1, f"backbone.actor_every={self.actor_every} must be at least 1")
        check(0 <= self.momentum < 1, f"backbone.momentum={self.momentum} must be in [0, 1)")
        check(0 < rate <= 1, f"backbone.statistics_rate={rate} must be in (0, 1]")
        check(self.renorm_after >= 0, f"backbone.renorm_after={self.renorm_after} must not be negative")


class State(NamedTuple):
    actor: RenormMLP
    critics: RenormMLP  # two of them: every array has a leading axis of 2
    actor_statistics: Statistics
    critic_statistics: Statistics  # two
    log_temperature: Float[Array, ""]
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    temperature_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made
    actor_loss: Float[Array, ""]  # at the actor's latest step, and the entropy then; 0 before the first
    entropy: Float[Array, ""]


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor, actor_statistics = RenormMLP.init(actor_key, (states, *config.hidden, 2 * actions))
        sizes = (states + actions, *config.critic_hidden, 1)
        critics, statistics = jax.vmap(lambda k: RenormMLP.init(k, sizes))(jax.random.split(critic_key))
        log_temperature = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
        return State(
            actor=actor,
            critics=critics,
            actor_statistics=actor_statistics,
            critic_statistics=statistics,
            log_temperature=log_temperature,
            actor_optimiser=optimise.start(actor, config.learning_rate),
            critic_optimiser=optimise.start(critics, config.learning_rate),
            temperature_optimiser=optimise.start(log_temperature, config.learning_rate),
            updates=jnp.asarray(0, jnp.int32),
            actor_loss=jnp.zeros(()),
            entropy=jnp.zeros(()),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        target_key, actor_key = jax.random.split(key)
        state = state._replace(updates=state.updates + 1)
        state, metrics = _update_critics(state, transitions, rewards, target_key, config)
        due = state.updates % config.actor_every == 0
        state = jax.lax.cond(
            in_any_lane(due),
            lambda: choose(due, _update_actor(state, transitions, actor_key, config), state),
            lambda: state,
        )
        metrics |= {"actor_loss": state.actor_loss, "entropy": state.entropy}
        return state, metrics | {"temperature": jnp.exp(state.log_temperature)}

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        return act_by_chance(state.actor.folded(state.actor_statistics)(observation), key, explore)

    def actor(state: State) -> dict[str, Array]:
        return arrays(state.actor.folded(state.actor_statistics))

    return Backbone(init, update, act, actor, "tanh_gaussian", config.batch_size)


def joint_values(
    critics: RenormMLP, statistics: Statistics, inputs: Float[Array, "B I"], config: Config
) -> tuple[Float[Array, "J B"], Statistics]:
    """Q_j of every critic for one batch of (s, a) and (s', a') together, so that one normalisation serves
    both: apart they are distributed differently, and neither is what running statistics describe."""

    def learn(critic: RenormMLP, statistics: Statistics) -> tuple[Array, Statistics]:
        return critic.learn(inputs, statistics, config.statistics_rate, config.renorm_after)

    found, statistics = jax.vmap(learn)(critics, statistics)
    return jnp.squeeze(found, axis=-1), statistics


def _update_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, config: Config
) -> tuple[State, Metrics]:
    actor = state.actor.folded(state.actor_statistics)
    next_action, next_log_density = sample_action(actor(transitions.next_observation), key)
    now = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
    after = jnp.concatenate([transitions.next_observation, next_action], axis=-1)
    inputs = jnp.concatenate([now, after])

    def loss(critics: RenormMLP) -> tuple[Array, tuple[Array, Statistics]]:
        found, statistics = joint_values(critics, state.critic_statistics, inputs, config)
        found, next_values = jnp.split(found, 2, axis=1)
        soft_values = config.pooled(next_values) - jnp.exp(state.log_temperature) * next_log_density
        target = bellman_target(rewards, transitions.terminated, soft_values, config.discount)
        errors = found - jax.lax.stop_gradient(target)[None, :]
        return jnp.sum(jnp.mean(errors**2, axis=1)), (jnp.mean(found), statistics)

    step = jax.value_and_grad(loss, has_aux=True)
    (critic_loss, (value, statistics)), gradients = step(state.critics)
    critics, optimiser = optimise.step(state.critic_optimiser, state.critics, gradients, config.momentum)
    state = state._replace(critics=critics, critic_statistics=statistics, critic_optimiser=optimiser)
    return state, {"critic_loss": critic_loss, "value": value, "reward_mean": jnp.mean(rewards)}


def _update_actor(state: State, transitions: Transitions, key: PRNGKeyArray, config: Config) -> State:
    """A step of the actor, which learns from its batch, up the critics, which judge by what they know; then
    one of the temperature."""
    judges = jax.vmap(RenormMLP.folded)(state.critics, state.critic_statistics)

    def loss(actor: RenormMLP) -> tuple[Array, tuple[Array, Statistics]]:
        outputs, statistics = actor.learn(
            transitions.observation, state.actor_statistics, config.statistics_rate, config.renorm_after
        )
        action, log_density = sample_action(outputs, key)
        worth = config.pooled(values(judges, transitions.observation, action))
        found = jnp.mean(jnp.exp(state.log_temperature) * log_density - worth)
        return found, (-jnp.mean(log_density), statistics)

    step = jax.value_and_grad(loss, has_aux=True)
    (actor_loss, (entropy, statistics)), gradients = step(state.actor)
    actor, actor_optimiser = optimise.step(state.actor_optimiser, state.actor, gradients, config.momentum)
    log_temperature, temperature_optimiser = step_temperature(
        state.log_temperature,
        state.temperature_optimiser,
        entropy,
        config.entropy_for(transitions.action.shape[-1]),
    )
    return state._replace(
        actor=actor,
        actor_statistics=statistics,
        log_temperature=log_temperature,
        actor_optimiser=actor_optimiser,
        temperature_optimiser=temperature_optimiser,
        actor_loss=actor_loss,
        entropy=entropy,
    )
