"""What actor-critic backbones share: settings, critics and their targets, arrays for workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.core.config import at_least, check, positive
from apportion.core.types import Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP, check_layers
from apportion.nn.optimise import Optimiser
from apportion.nn.residual import ResidualMLP

Network = MLP | ResidualMLP
AnyNetwork = TypeVar("AnyNetwork", bound=Network)
Weights = TypeVar("Weights")
Judged = Callable[[Any, Array, Array], Float[Array, "J B"]]  # Q_j(s, a) of critics


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

    def __post_init__(self) -> None:
        check_layers("backbone.hidden", self.hidden)
        positive(self, "backbone.", "learning_rate")
        at_least(self, "backbone.", batch_size=1)
        check(0 <= self.discount < 1, f"backbone.discount={self.discount} must be in [0, 1)")


def check_width(name: str, layers: tuple[int, ...]) -> None:
    """Complain of a setting that is not the width of residual blocks, once for every block."""
    check_layers(name, layers)
    check(len(set(layers)) == 1, f"{name}={layers} must be the same width for every block")


@dataclass(frozen=True)
class TargetConfig(CommonConfig):
    """The settings of those with target networks."""

    polyak: float = 0.005
    """How far target networks move towards those that learn, each time they move."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 < self.polyak <= 1, f"backbone.polyak={self.polyak} must be in (0, 1]")


# --- Critics: one network whose arrays have a leading axis of J, the number of critics


def init_critics(
    key: PRNGKeyArray,
    count: int,
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int = 1,
    kind: type[MLP] = MLP,
) -> MLP:
    return jax.vmap(lambda k: kind.init(k, (inputs, *hidden, outputs)))(jax.random.split(key, count))


def first(critics: MLP) -> MLP:
    """One of them, as a network of its own."""
    return jax.tree.map(lambda array: array[0], critics)


def values(
    critics: Network, observation: Float[Array, "B S"], action: Float[Array, "B A"]
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


def critic_loss(
    critics: Network, transitions: Transitions, target: Float[Array, "B"], judged: Judged = values
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Σ_j mean (Q_j(s, a) - target)², and the mean of all Q_j(s, a)."""
    found = judged(critics, transitions.observation, transitions.action)
    return jnp.sum(jnp.mean((found - target[None, :]) ** 2, axis=1)), jnp.mean(found)


def step_critics(
    critics: AnyNetwork, optimiser: Optimiser, steps: Transitions, target: Array, judged: Judged = values
) -> tuple[AnyNetwork, Optimiser, Metrics]:
    """One step down that loss."""
    (loss, value), gradients = jax.value_and_grad(critic_loss, has_aux=True)(critics, steps, target, judged)
    critics, optimiser = optimise.step(optimiser, critics, gradients)
    return critics, optimiser, {"critic_loss": loss, "value": value}


def follow(target: Weights, network: Weights, polyak: float) -> Weights:
    """θ' + polyak (θ - θ')."""
    moved: Weights = jax.tree.map(lambda t, n: t + polyak * (n - t), target, network)
    return moved


# --- Workers


def arrays(actor: MLP) -> dict[str, Array]:
    """An actor's layers under the names that envs.acting knows them by."""
    layers = enumerate(zip(actor.weights, actor.biases, strict=True))
    return {name: array for i, (w, b) in layers for name, array in ((f"w{i}", w), (f"b{i}", b))}
