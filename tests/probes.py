"""Tiny tasks whose optimum or values are known, training on them, and networks in plain NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apportion.core.spec import Spec
from apportion.core.types import Backbone, Transitions
from builders import transitions

TINY = Spec("probe", ("where",), ("a",), max_episode_steps=2, max_segment_steps=1)

BEST_ACTION = 0.3  # of the bandit

PLACES = jnp.asarray([[0.0], [1.0], [-1.0]])  # of the chain


def chain_values(discount: float) -> list[float]:
    """What each of PLACES is worth, whatever the action."""
    return [discount, 1.0, 1 / (1 - discount)]


def bandit() -> Transitions:
    """One step that pays -(a - 0.3)²."""
    size = 512
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (size, 1)), jnp.float32)
    return transitions(0, size, TINY)._replace(
        observation=jnp.ones((size, 1)),
        action=action,
        paid=-((action[:, 0] - BEST_ACTION) ** 2),
        terminated=jnp.ones(size, bool),
    )


def chain() -> Transitions:
    """At 0, a reward of 0 leads to 1; at 1, a reward of 1 ends it; at -1, a reward of 1 leads back, and only
    time limits cut it. So Q(0) = γ, Q(1) = 1, Q(-1) = 1/(1-γ)."""
    size = 240
    where = np.tile([0.0, 1.0, -1.0], size // 3)
    return transitions(0, size, TINY)._replace(
        observation=jnp.asarray(where[:, None], jnp.float32),
        next_observation=jnp.asarray(np.where(where == 0, 1.0, where)[:, None], jnp.float32),
        paid=jnp.asarray(where != 0, jnp.float32),
        terminated=jnp.asarray(where == 1),
    )


def train(backbone: Backbone, steps: Transitions, updates: int, spec: Spec = TINY) -> Any:
    """The state after updates on random batches of a fixed set of transitions."""

    def update(state: Any, key: jax.Array) -> tuple[Any, None]:
        draw_key, update_key = jax.random.split(key)
        chosen = jax.random.randint(draw_key, (backbone.batch_size,), 0, len(steps.paid))
        drawn = jax.tree.map(lambda column: column[chosen], steps)
        return backbone.update(state, drawn, drawn.paid, update_key)[0], None

    @jax.jit
    def run(key: jax.Array) -> Any:
        init_key, update_key = jax.random.split(key)
        start = backbone.init(init_key, spec)
        return jax.lax.scan(update, start, jax.random.split(update_key, updates))[0]

    return run(jax.random.key(5))


def plain_outputs(network: Any, inputs: np.ndarray) -> np.ndarray:
    """An MLP of NumPy arrays."""
    x = inputs
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ network.weights[-1] + network.biases[-1]


def plain_values(critics: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """What each of several critics says, [J, B]."""
    inputs = np.concatenate([observation, action], axis=1)
    count = len(critics.biases[0])
    each = [jax.tree.map(lambda array, j=j: array[j], critics) for j in range(count)]
    return np.stack([plain_outputs(critic, inputs)[:, 0] for critic in each])
