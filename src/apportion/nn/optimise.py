"""Adam whose learning rate is part of the state, so that each lane may have its own; so is weight decay."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

Params = TypeVar("Params")
Aside = TypeVar("Aside")

MOMENTUM = 0.9  # Adam's β₁: how much of its direction each step keeps


class Optimiser(NamedTuple):
    learning_rate: Float[Array, ""]
    moments: optax.OptState
    weight_decay: Float[Array, ""] | None = None  # None: weights stay as long as they are


def start(params: Params, learning_rate: float, weight_decay: float | None = None) -> Optimiser:
    decay = None if weight_decay is None else jnp.asarray(weight_decay, jnp.float32)
    return Optimiser(jnp.asarray(learning_rate, jnp.float32), _adam(MOMENTUM).init(params), decay)


def step(
    optimiser: Optimiser,
    params: Params,
    gradients: Params,
    momentum: float = MOMENTUM,
    share: Float[Array, ""] | None = None,  # of the learning rate; None: all of it
) -> tuple[Params, Optimiser]:
    """One Adam step downhill; with weight decay also towards 0, which the moments do not see (AdamW)."""
    rate = optimiser.learning_rate if share is None else optimiser.learning_rate * share
    directions, moments = _adam(momentum).update(gradients, optimiser.moments)
    decay = optimiser.weight_decay
    if decay is not None:
        directions = jax.tree.map(lambda d, p: d + decay * p, directions, params)
    params = jax.tree.map(lambda p, d: p - rate * d, params, directions)
    return params, optimiser._replace(moments=moments)


def fresh(tree: Params) -> Params:
    """The same tree, with optimisers that have forgotten how steep anything was."""

    def one(node: Any) -> Any:
        if not isinstance(node, Optimiser):
            return node
        return node._replace(moments=jax.tree.map(jnp.zeros_like, node.moments))

    forgotten: Params = jax.tree.map(one, tree, is_leaf=lambda node: isinstance(node, Optimiser))
    return forgotten


def descend(
    optimiser: Optimiser, params: Params, loss: Callable[[Params], Float[Array, ""]]
) -> tuple[Params, Optimiser, Float[Array, ""]]:
    """One Adam step down the slope of a loss, and what the loss was before it."""
    value, gradients = jax.value_and_grad(loss)(params)
    params, optimiser = step(optimiser, params, gradients)
    return params, optimiser, value


def descend_with(
    optimiser: Optimiser,
    params: Params,
    loss: Callable[[Params], tuple[Float[Array, ""], Aside]],
    longest: float | None = None,
) -> tuple[Params, Optimiser, Aside]:
    """One Adam step down the slope of a loss, and what it found on the side; the gradient is shortened to a
    norm of at most `longest` over all arrays."""
    gradients, aside = jax.grad(loss, has_aux=True)(params)
    if longest is not None:
        gradients, _ = optax.clip_by_global_norm(longest).update(gradients, optax.EmptyState())
    params, optimiser = step(optimiser, params, gradients)
    return params, optimiser, aside


def _adam(momentum: float) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=momentum)
