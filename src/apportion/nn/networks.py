"""Networks as Equinox modules that hold arrays and nothing else, so that they can live in a lane's state."""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import check

NORM_EPSILON = 1e-5  # added to the variance in a layer norm


def check_layers(name: str, layers: tuple[int, ...]) -> None:
    """Complain of a setting that is no list of hidden layers."""
    check(len(layers) >= 1, f"{name} needs at least one layer")
    check(min(layers) >= 1, f"{name}={layers} must be at least 1 each")


def dense(
    x: Float[Array, "*B I"], weight: Float[Array, "I O"], bias: Float[Array, "O"]
) -> Float[Array, "*B O"]:
    """x W + b."""
    product = x @ weight
    return product + jnp.broadcast_to(bias, product.shape)


def normalise(x: Float[Array, "*B W"]) -> Float[Array, "*B W"]:
    """A layer norm: the last axis to mean 0 and variance 1. Scales and offsets are those of the layer that
    follows."""
    return jax.nn.standardize(x, axis=-1, epsilon=NORM_EPSILON)


def init_dense(
    key: PRNGKeyArray, sizes: Sequence[int]
) -> list[tuple[Float[Array, "I O"], Float[Array, "O"]]]:
    """Weights and biases of consecutive layers, uniform in ±1/sqrt(inputs).

    All come from one draw: each shape of random numbers costs half a second to compile.
    """
    shapes = list(itertools.pairwise(sizes))
    draws = jax.random.uniform(key, (sum((i + 1) * o for i, o in shapes),), minval=-1.0)
    layers, position = [], 0
    for inputs, outputs in shapes:
        block = draws[position : position + (inputs + 1) * outputs] / math.sqrt(inputs)
        block = block.reshape(inputs + 1, outputs)
        layers.append((block[:-1], block[-1]))
        position += (inputs + 1) * outputs
    return layers


class MLP(eqx.Module):
    """Fully connected layers with ReLU between them, over the last axis of the input."""

    weights: list[Float[Array, "_I _O"]]  # the underscore: every layer has its own sizes
    biases: list[Float[Array, "_O"]]

    @classmethod
    def init(cls, key: PRNGKeyArray, sizes: Sequence[int]) -> "MLP":
        """`sizes`: inputs, hidden layers, outputs."""
        layers = init_dense(key, sizes)
        return cls(weights=[w for w, _ in layers], biases=[b for _, b in layers])

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(dense(x, weight, bias))
        return dense(x, self.weights[-1], self.biases[-1])

    def scalar(self, *inputs: Float[Array, "*B _I"]) -> Float[Array, "*B"]:
        """The one output that it has for [x, y, ...]."""
        return jnp.squeeze(self(jnp.concatenate(inputs, axis=-1)), axis=-1)

    def moved(self, factor: Float[Array, ""], more: Float[Array, ""]) -> "MLP":
        """The same with its outputs times a factor, and so much more."""
        weights = [*self.weights[:-1], self.weights[-1] * factor]
        return MLP(weights, [*self.biases[:-1], self.biases[-1] * factor + more])


class NormedMLP(MLP):
    """An MLP with a layer norm in each hidden layer, before bias and ReLU: however far off its input is, what
    it returns stays within what its last weights can reach."""

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            normed = normalise(x @ weight)
            x = jax.nn.relu(normed + jnp.broadcast_to(bias, normed.shape))
        return dense(x, self.weights[-1], self.biases[-1])


class MixtureDynamics(eqx.Module):
    """One network, shared by all target dimensions, that predicts each s'_i as a Gaussian mixture.

    Its input for target i is [C^{s→s}[:, i] ⊙ s, C^{a→s}[:, i] ⊙ a], plus who i is: `identity` is a learned
    embedding of the target, added before the first ReLU (the same as feeding a one-hot code of i).
    """

    weight: Float[Array, "I H"]  # I = S + A
    bias: Float[Array, "H"]
    identity: Float[Array, "S H"]
    body: MLP

    @staticmethod
    def init(
        key: PRNGKeyArray, states: int, actions: int, hidden: Sequence[int], components: int
    ) -> "MixtureDynamics":
        first_key, identity_key, body_key = jax.random.split(key, 3)
        [(weight, bias)] = init_dense(first_key, (states + actions, hidden[0]))
        return MixtureDynamics(
            weight=weight,
            bias=bias,
            identity=jax.random.normal(identity_key, (states, hidden[0])),
            body=MLP.init(body_key, (*hidden, 3 * components)),
        )

    def __call__(
        self,
        observation: Float[Array, "B S"],
        action: Float[Array, "B A"],
        state_to_state: Float[Array, "S S"],
        action_to_state: Float[Array, "A S"],
        *,
        use_identity: bool,
    ) -> tuple[Float[Array, "B S K"], Float[Array, "B S K"], Float[Array, "B S K"]]:
        """Means, raw log-standard-deviations and mixture logits of each next-state dimension."""
        inputs = jnp.concatenate([observation, action], axis=1)
        mask = jnp.concatenate([state_to_state, action_to_state], axis=0)
        # Masking the weights of each target costs the same sums as masking its inputs, in one matrix product.
        first = self.weight[:, None, :] * mask[:, :, None]
        hidden = jnp.tensordot(inputs, first, axes=1)
        offset = self.bias[None, :] + self.identity if use_identity else self.bias[None, :]
        hidden = jax.nn.relu(hidden + jnp.broadcast_to(offset, hidden.shape))
        means, log_stds, mixture_logits = jnp.split(self.body(hidden), 3, axis=-1)
        return means, log_stds, mixture_logits
