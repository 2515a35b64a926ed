"""FlashSAC's network: residual blocks with batch norm, whose layers keep their length while they learn.

Where only running statistics count, batch norms fold into the layers beside them.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.nn.networks import MLP, dense, init_dense
from apportion.nn.renorm import Statistics, rows
from apportion.nn.residual import EXPANSION

EPSILON = 1e-5  # added to every variance
RMS_EPSILON = 1e-6  # added to the mean square in an RMS norm


class UnitResidual(eqx.Module):
    """x ← W_0 norm(x), then x ← x + relu(norm(W relu(norm(W x)))) for every block, then an affine head of the
    RMS norm of x. No other layer has a bias: norm(x) = scale x̂ + shift does it."""

    weights: list[Float[Array, "_I _O"]]  # embedding, two of every block, head
    scales: list[Float[Array, "_I"]]  # of the batch norms: of the inputs, then of each layer in a block
    shifts: list[Float[Array, "_I"]]
    rms_scale: Float[Array, "_H"]
    bias: Float[Array, "_O"]  # of the head

    @staticmethod
    def init(key: PRNGKeyArray, sizes: Sequence[int]) -> tuple["UnitResidual", Statistics]:
        """`sizes`: inputs, the width once for every block, outputs. Layers start orthogonal."""
        inputs, *widths, outputs = sizes
        inside = [size for width in widths for size in (width, EXPANSION * width)]
        drawn = init_dense(key, (inputs, *inside, widths[-1], outputs))
        normed = [inputs, *inside[1:], widths[-1]]
        ones, zeros = ([fill(size) for size in normed] for fill in (jnp.ones, jnp.zeros))
        network = UnitResidual(
            weights=[_orthogonal(weight) for weight, _ in drawn],
            scales=ones,
            shifts=zeros,
            rms_scale=jnp.ones(widths[-1]),
            bias=jnp.zeros(outputs),
        )
        means, variances = ([fill(size) for size in normed] for fill in (jnp.zeros, jnp.ones))
        return network.unit(), Statistics(means, variances, jnp.asarray(0, jnp.int32))

    def unit(self) -> "UnitResidual":
        """The same with the weights into each output at length 1, and with those of each norm, scale and
        shift together, at length √d."""
        norms = [_to_root(jnp.stack(pair)) for pair in zip(self.scales, self.shifts, strict=True)]
        return UnitResidual(
            weights=[weight / jnp.sqrt(_squares(weight, axis=0)) for weight in self.weights],
            scales=[scale for scale, _ in norms],
            shifts=[shift for _, shift in norms],
            rms_scale=_to_root(self.rms_scale[None])[0],
            bias=self.bias,
        )

    def learn(
        self, x: Float[Array, "B I"], statistics: Statistics, rate: float
    ) -> tuple[Float[Array, "B O"], Statistics]:
        """Outputs for a batch to learn from, normalised by the batch alone; running statistics move towards
        it by the share `rate`."""
        found: list[tuple[Array, Array]] = []

        def norm(x: Float[Array, "B _I"]) -> Float[Array, "B _I"]:
            mean, variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
            factor = self.scales[len(found)] * jax.lax.rsqrt(variance + EPSILON)
            offset = self.shifts[len(found)] - mean * factor
            found.append((mean, variance))
            return x * rows(factor, x) + rows(offset, x)

        x = norm(x) @ self.weights[0]
        blocks = self.weights[1:-1]
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            x = x + jax.nn.relu(norm(jax.nn.relu(norm(x @ first)) @ second))
        x = rms_norm(x)
        outputs = dense(x * rows(self.rms_scale, x), self.weights[-1], self.bias)
        means = [m + rate * (f - m) for m, (f, _) in zip(statistics.means, found, strict=True)]
        variances = [v + rate * (f - v) for v, (_, f) in zip(statistics.variances, found, strict=True)]
        return outputs, Statistics(means, variances, statistics.batches + 1)

    def folded(self, statistics: Statistics) -> "FoldedResidual":
        """By the running statistics alone each norm is affine: y = x ⊙ factor + offset. That of the inputs
        goes into the layer after it, all others into the one before."""
        factors = [
            scale * jax.lax.rsqrt(variance + EPSILON)
            for scale, variance in zip(self.scales, statistics.variances, strict=True)
        ]
        offsets = [
            shift - mean * factor
            for shift, mean, factor in zip(self.shifts, statistics.means, factors, strict=True)
        ]
        embed, *blocks, head = self.weights
        inside = [weight * rows(factor, weight) for weight, factor in zip(blocks, factors[1:], strict=True)]
        weights = [factors[0][:, None] * embed, *inside, self.rms_scale[:, None] * head]
        return FoldedResidual(MLP(weights, [offsets[0] @ embed, *offsets[1:], self.bias]))


class FoldedResidual(eqx.Module):
    """The same network without norms, but for the last."""

    layers: MLP

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        weights, biases = self.layers.weights, self.layers.biases
        x = dense(x, weights[0], biases[0])
        for layer in range(1, len(weights) - 1, 2):
            inside = jax.nn.relu(dense(x, weights[layer], biases[layer]))
            x = x + jax.nn.relu(dense(inside, weights[layer + 1], biases[layer + 1]))
        return dense(rms_norm(x), weights[-1], biases[-1])


def rms_norm(x: Float[Array, "*B H"]) -> Float[Array, "*B H"]:
    """x / sqrt(mean x²), over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + RMS_EPSILON)


def _orthogonal(weight: Float[Array, "I O"]) -> Float[Array, "I O"]:
    """The nearest matrix whose rows or columns, whichever are fewer, are orthogonal and of length 1.

    By the iteration of Newton and Schulz, W ← 1.5 W - 0.5 W WᵀW, for many QR decompositions at once can block
    each other for good on a CPU with few cores.
    """
    if weight.shape[0] < weight.shape[1]:
        return _orthogonal(weight.T).T
    with jax.default_matmul_precision("highest"):
        weight = weight / jnp.sqrt(jnp.linalg.norm(weight.T @ weight))  # at least its largest singular value
        # After 24 turns singular values that were 1/10,000 of the largest are 1.
        return jax.lax.fori_loop(0, 24, lambda _, w: 1.5 * w - 0.5 * w @ (w.T @ w), weight)


def _to_root(vectors: Float[Array, "K d"]) -> Float[Array, "K d"]:
    """All of them together at length √d."""
    return vectors * (math.sqrt(vectors.shape[1]) * jax.lax.rsqrt(_squares(vectors, axis=None)))


def _squares(x: Array, axis: int | None) -> Array:
    """Sums of squares, never 0."""
    return jnp.sum(x**2, axis=axis, keepdims=True) + 1e-8
