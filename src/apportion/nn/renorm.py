"""Batch renormalisation (Ioffe, 2017): a layer's inputs are normalised by their batch, but as if by running
statistics. Where only those count, a network with it is one without: they fold into the weights."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from apportion.nn.networks import MLP, dense

EPSILON = 1e-3  # added to every variance


class Statistics(NamedTuple):
    """What the inputs of each layer have been like. They follow the data; no gradient moves them."""

    means: list[Float[Array, "_I"]]  # the underscore: every layer has its own size
    variances: list[Float[Array, "_I"]]
    batches: Int[Array, ""]  # so many were seen


class RenormMLP(eqx.Module):
    """An MLP that renormalises the inputs of every layer: x → scale x̂ + shift."""

    layers: MLP
    scales: list[Float[Array, "_I"]]
    shifts: list[Float[Array, "_I"]]

    @staticmethod
    def init(key: PRNGKeyArray, sizes: Sequence[int]) -> tuple["RenormMLP", Statistics]:
        """`sizes`: inputs, hidden layers, outputs."""
        inputs = sizes[:-1]
        means, variances = [jnp.zeros(size) for size in inputs], [jnp.ones(size) for size in inputs]
        scales, shifts = [jnp.ones(size) for size in inputs], [jnp.zeros(size) for size in inputs]
        statistics = Statistics(means, variances, jnp.asarray(0, jnp.int32))
        return RenormMLP(MLP.init(key, sizes), scales, shifts), statistics

    def learn(
        self, x: Float[Array, "B I"], statistics: Statistics, rate: float, warmup: int
    ) -> tuple[Float[Array, "B O"], Statistics]:
        """Outputs for a batch to learn from, and the statistics with it: they move by the share `rate`.
        For the first `warmup` batches each is normalised by itself alone."""
        warm = statistics.batches >= warmup
        means, variances = [], []
        running = zip(statistics.means, statistics.variances, strict=True)
        for layer, (mean, variance) in enumerate(running):
            if layer > 0:
                x = jax.nn.relu(x)
            batch_mean, batch_variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
            x = renormalise(x, mean, variance, warm)
            x = x * rows(self.scales[layer], x) + rows(self.shifts[layer], x)
            x = dense(x, self.layers.weights[layer], self.layers.biases[layer])
            means.append(mean + rate * (batch_mean - mean))
            variances.append(variance + rate * (batch_variance - variance))
        return x, Statistics(means, variances, statistics.batches + 1)

    def folded(self, statistics: Statistics) -> MLP:
        """By the running statistics alone, each normalisation is affine: with the layer after it, one layer.

        W' = diag(scale / σ) W,  b' = b + (shift - μ scale / σ) W
        """
        weights, biases = [], []
        for layer, weight in enumerate(self.layers.weights):
            factor = self.scales[layer] / jnp.sqrt(statistics.variances[layer] + EPSILON)
            offset = self.shifts[layer] - statistics.means[layer] * factor
            weights.append(factor[:, None] * weight)
            biases.append(self.layers.biases[layer] + offset @ weight)
        return MLP(weights, biases)


def renormalise(
    x: Float[Array, "B I"], mean: Float[Array, "I"], variance: Float[Array, "I"], warm: Bool[Array, ""]
) -> Float[Array, "B I"]:
    """x̂ = (x - μ_B) / σ_B · r + d,  r = clip(σ_B / σ, 1/3, 3),  d = clip((μ_B - μ) / σ, ±5).

    Gradients pass through the batch's μ_B and σ_B, and take r and d as given. Until warm, r = 1 and d = 0.
    """
    batch_mean, batch_std = jnp.mean(x, axis=0), jnp.sqrt(jnp.var(x, axis=0) + EPSILON)
    std = jnp.sqrt(variance + EPSILON)
    ratio = jnp.clip(batch_std / std, 1 / 3.0, 3.0)
    shift = jnp.clip((batch_mean - mean) / std, -5.0, 5.0)
    ratio = jax.lax.stop_gradient(jnp.where(warm, ratio, 1.0))
    shift = jax.lax.stop_gradient(jnp.where(warm, shift, 0.0))
    return (x - rows(batch_mean, x)) * rows(ratio / batch_std, x) + rows(shift, x)


def rows(vector: Float[Array, "I"], x: Float[Array, "B I"]) -> Float[Array, "B I"]:
    return jnp.broadcast_to(vector, x.shape)
