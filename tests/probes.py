"""Tiny tasks whose optimum or values are known, training on them, and networks in plain NumPy."""

from collections.abc import Callable
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


def plain_residual(network: Any, inputs: np.ndarray) -> np.ndarray:
    """A ResidualMLP of NumPy arrays, one input after the other."""

    def norm(x: np.ndarray) -> np.ndarray:
        mean = sum(x) / len(x)
        return (x - mean) / np.sqrt(sum((x - mean) ** 2) / len(x) + 1e-5)

    outputs = []
    for row in inputs:
        x = plain_outputs(network.embed, row)
        for block in network.blocks:
            x = x + plain_outputs(block, norm(x))
        outputs.append(plain_outputs(network.read, norm(x)))
    return np.stack(outputs)


def plain_values(
    critics: Any,
    observation: np.ndarray,
    action: np.ndarray,
    outputs: Callable[[Any, np.ndarray], np.ndarray] = plain_outputs,
) -> np.ndarray:
    """What each of several critics says, [J, B]."""
    inputs = np.concatenate([observation, action], axis=1)
    count = len(jax.tree.leaves(critics)[0])
    each = [jax.tree.map(lambda array, j=j: array[j], critics) for j in range(count)]
    return np.stack([outputs(critic, inputs)[:, 0] for critic in each])


def plain_renorm(
    network: Any, x: np.ndarray, running: Any, rate: float, warm: bool, given: list[Any] | None = None
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A RenormMLP of NumPy arrays on a batch: outputs, and the running means and variances after it. Ratios
    and shifts come from `given`, or are put there where it is empty."""
    means, variances = [], []
    known = iter(given) if given else None
    for layer, weight in enumerate(network.layers.weights):
        x = np.maximum(x, 0) if layer else x
        columns = []
        for i in range(x.shape[1]):
            mean = sum(x[:, i]) / len(x)
            variance = sum((x[:, i] - mean) ** 2) / len(x)
            std, usual = np.sqrt(variance + 1e-3), np.sqrt(running.variances[layer][i] + 1e-3)
            ratio = min(max(std / usual, 1 / 3), 3) if warm else 1
            shift = min(max((mean - running.means[layer][i]) / usual, -5), 5) if warm else 0
            if known is not None:
                ratio, shift = next(known)
            elif given is not None:
                given.append((ratio, shift))
            normalised = (x[:, i] - mean) / std * ratio + shift
            columns.append(normalised * network.scales[layer][i] + network.shifts[layer][i])
            means.append(running.means[layer][i] + rate * (mean - running.means[layer][i]))
            variances.append(running.variances[layer][i] + rate * (variance - running.variances[layer][i]))
        x = np.stack(columns, axis=1) @ weight + network.layers.biases[layer]
    ends = np.cumsum([len(weight) for weight in network.layers.weights])[:-1]
    return x, np.split(np.array(means), ends), np.split(np.array(variances), ends)


def plain_unit(
    network: Any, x: np.ndarray, running: tuple[list[np.ndarray], list[np.ndarray]] | None = None
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A UnitResidual of NumPy arrays: outputs, and the means and variances that each norm went by: those of
    the batch, unless there are running ones."""
    means: list[np.ndarray] = []
    variances: list[np.ndarray] = []

    def norm(x: np.ndarray) -> np.ndarray:
        place = len(means)
        mean, variance = x.mean(axis=0), ((x - x.mean(axis=0)) ** 2).mean(axis=0)
        if running is not None:
            mean, variance = running[0][place], running[1][place]
        means.append(mean)
        variances.append(variance)
        return (x - mean) / np.sqrt(variance + 1e-5) * network.scales[place] + network.shifts[place]

    embed, *blocks, head = network.weights
    x = norm(x) @ embed
    for place in range(0, len(blocks), 2):
        inside = np.maximum(norm(x @ blocks[place]), 0)
        x = x + np.maximum(norm(inside @ blocks[place + 1]), 0)
    x = np.stack([row / np.sqrt((row**2).mean() + 1e-6) for row in x])
    return (x * network.rms_scale) @ head + network.bias, means, variances
