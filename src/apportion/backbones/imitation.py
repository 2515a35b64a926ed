"""Behaviour cloning: the policy that makes logged actions most likely. IQL's has the same form."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones.actor_critic import CommonConfig, arrays
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser

LOG_STD_RANGE = (-5.0, 1.0)


@dataclass(frozen=True)
class Config(CommonConfig):
    """Behaviour cloning, from logged episodes alone: does what was done, whatever it earned."""


class Actor(NamedTuple):
    """A Gaussian about tanh(μ(s)), or a softmax over discrete actions."""

    network: MLP
    log_std: Float[Array, "A"] | None  # None: actions are discrete


class State(NamedTuple):
    actor: Actor
    optimiser: Optimiser


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor = init_actor(key, spec, config.hidden)
        return State(actor, optimise.start(actor, config.learning_rate))

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        del key  # nothing here is drawn at random

        def loss(actor: Actor) -> Array:
            return -jnp.mean(log_density(actor, transitions.observation, transitions.action))

        actor, optimiser, actor_loss = optimise.descend(state.optimiser, state.actor, loss)
        return State(actor, optimiser), {"actor_loss": actor_loss, "reward_mean": jnp.mean(rewards)}

    return build(config, init, update)


def init_actor(key: PRNGKeyArray, spec: Spec, hidden: tuple[int, ...]) -> Actor:
    network = MLP.init(key, (spec.observation_size, *hidden, spec.action_size))
    return Actor(network, None if spec.discrete else jnp.zeros(spec.action_size))


def log_density(
    actor: Actor, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "B"]:
    """log N(a; tanh(μ(s)), σ²), or log of a discrete action's probability. Not of a Gaussian before the tanh:
    logged actions lie at the ends of their range, too, where that has no density."""
    outputs = actor.network(observation)
    if actor.log_std is None:
        return jnp.sum(jax.nn.log_softmax(outputs) * action, axis=-1)
    log_std = jnp.broadcast_to(jnp.clip(actor.log_std, *LOG_STD_RANGE), outputs.shape)
    distance = (action - jnp.tanh(outputs)) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * distance**2 - log_std - 0.5 * math.log(2 * math.pi), axis=-1)


def build(config: CommonConfig, init: Callable[..., Any], update: Callable[..., Any]) -> Backbone:
    """A backbone for logs whose state has such an actor."""

    def act(
        state: Any, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        """The likeliest action, or to explore a drawn one."""
        outputs, log_std = state.actor.network(observation), state.actor.log_std
        if log_std is None:
            chosen = jax.random.categorical(key, outputs) if explore else jnp.argmax(outputs)
            return jax.nn.one_hot(chosen, outputs.shape[0], dtype=jnp.float32)
        noise = jax.random.normal(key, outputs.shape) if explore else jnp.zeros_like(outputs)
        spread = jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE))
        return jnp.clip(jnp.tanh(outputs) + spread * noise, -1.0, 1.0)

    def actor(state: Any) -> dict[str, Array]:
        found, log_std = arrays(state.actor.network), state.actor.log_std
        return found if log_std is None else found | {"noise": jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE))}

    return Backbone(init, update, act, actor, "sampled", config.batch_size, None, offline=True)
