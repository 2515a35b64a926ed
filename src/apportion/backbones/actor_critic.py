"""What actor-critic backbones share: critics and their targets, deterministic actors, arrays for workers."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class CommonConfig:
    """The settings that all of these backbones have."""

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of each network."""
    learning_rate: float = 3e-4
    """Adam's step for all that is learned."""
    batch_size: int = 256
    """Transitions per update: N."""
    discount: float = 0.99
    """Discount of later rewards (the return itself is a plain sum)."""
    polyak: float = 0.005
    """How far target networks move towards those that learn, each time they move."""

    def __post_init__(self) -> None:
        check(len(self.hidden) >= 1, "backbone.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"backbone.hidden={self.hidden} must be at least 1 each")
        check(self.learning_rate > 0, f"backbone.learning_rate={self.learning_rate} must be positive")
        check(self.batch_size >= 1, f"backbone.batch_size={self.batch_size} must be at least 1")
        check(0 <= self.discount < 1, f"backbone.discount={self.discount} must be in [0, 1)")
        check(0 < self.polyak <= 1, f"backbone.polyak={self.polyak} must be in (0, 1]")


# --- Critics: one MLP whose arrays have a leading axis of J, the number of critics


def init_critics(
    key: PRNGKeyArray, count: int, inputs: int, hidden: tuple[int, ...], outputs: int = 1
) -> MLP:
    return jax.vmap(lambda k: MLP.init(k, (inputs, *hidden, outputs)))(jax.random.split(key, count))


def first(critics: MLP) -> MLP:
    """One of them, as a network of its own."""
    return jax.tree.map(lambda array: array[0], critics)


def values(
    critics: MLP, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "J B"]:
    """Q_j(s, a) of every critic."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.squeeze(jax.vmap(lambda critic: critic(inputs))(critics), axis=-1)


def bellman_target(
    rewards: Float[Array, "B"],
    terminated: Bool[Array, "B"],
    next_values: Float[Array, "B"],
    discount: float,
) -> Float[Array, "B"]:
    """r + γ V(s'), where a true end has no s'; a time limit has."""
    return rewards + discount * jnp.where(terminated, 0.0, next_values)


def step_critics(
    critics: MLP, optimiser: Optimiser, transitions: Transitions, target: Float[Array, "B"]
) -> tuple[MLP, Optimiser, Metrics]:
    """One step down Σ_j mean (Q_j(s, a) - target)²."""

    def loss(critics: MLP) -> tuple[Array, Array]:
        found = values(critics, transitions.observation, transitions.action)
        return jnp.sum(jnp.mean((found - target[None, :]) ** 2, axis=1)), jnp.mean(found)

    (value_loss, mean_value), gradients = jax.value_and_grad(loss, has_aux=True)(critics)
    critics, optimiser = optimise.step(optimiser, critics, gradients)
    return critics, optimiser, {"critic_loss": value_loss, "value": mean_value}


def follow(target: MLP, network: MLP, polyak: float) -> MLP:
    """θ' + polyak (θ - θ')."""
    return jax.tree.map(lambda t, n: t + polyak * (n - t), target, network)


# --- Deterministic actors: a = tanh(μ(s))


@dataclass(frozen=True)
class DeterministicConfig(CommonConfig):
    """The settings of backbones whose actor is a function, and explores by noise."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions while collecting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self.exploration_noise
        check(noise >= 0, f"backbone.exploration_noise={noise} must not be negative")


class Deterministic(NamedTuple):
    """What they learn."""

    actor: MLP
    target_actor: MLP
    critics: MLP  # every array has a leading axis of J
    target_critics: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser


def init_deterministic(
    key: PRNGKeyArray, spec: Spec, count: int, config: DeterministicConfig
) -> Deterministic:
    """An actor and so many critics; the targets start as their copies."""
    actor_key, critic_key = jax.random.split(key)
    states, actions = spec.observation_size, spec.action_size
    actor = MLP.init(actor_key, (states, *config.hidden, actions))
    critics = init_critics(critic_key, count, states + actions, config.hidden)
    return Deterministic(
        actor=actor,
        target_actor=jax.tree.map(jnp.copy, actor),
        critics=critics,
        target_critics=jax.tree.map(jnp.copy, critics),
        actor_optimiser=optimise.start(actor, config.learning_rate),
        critic_optimiser=optimise.start(critics, config.learning_rate),
    )


def act_with_noise(
    actor: MLP, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool, noise: float
) -> Float[Array, "A"]:
    """The action; to explore, Gaussian noise is added and the sum clipped to [-1, 1]."""
    action = jnp.tanh(actor(observation))
    if not explore:
        return action
    return jnp.clip(action + noise * jax.random.normal(key, action.shape), -1.0, 1.0)


def deterministic_loss(actor: MLP, critics: MLP, observation: Float[Array, "B S"]) -> Float[Array, ""]:
    """- mean Q_1(s, tanh(μ(s))): of several critics only the first teaches the actor."""
    first = jax.tree.map(lambda array: array[:1], critics)
    return -jnp.mean(values(first, observation, jnp.tanh(actor(observation))))


# --- Workers


def noisy_arrays(actor: MLP, noise: float) -> dict[str, Array]:
    """A deterministic actor's layers, and the size of the noise it explores by."""
    return arrays(actor) | {"noise": jnp.asarray(noise, jnp.float32)}


def arrays(actor: MLP) -> dict[str, Array]:
    """An actor's layers under the names that envs.acting knows them by."""
    layers = enumerate(zip(actor.weights, actor.biases, strict=True))
    return {name: array for i, (w, b) in layers for name, array in ((f"w{i}", w), (f"b{i}", b))}
