"""SimBa's network (Lee et al., 2025): a straight path from input to output, to which residual blocks add."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.nn.networks import MLP, init_dense, normalise

EXPANSION = 4  # a block's hidden layer is so many times as wide as the path


class ResidualMLP(eqx.Module):
    """x ← embed(x), then x ← x + block(x̂) for every block, then read(x̂), where x̂ is x after a layer norm."""

    embed: MLP  # of one layer
    blocks: list[MLP]  # of two layers each, the first of them EXPANSION times as wide as x
    read: MLP  # of one layer

    @staticmethod
    def init(key: PRNGKeyArray, sizes: Sequence[int]) -> "ResidualMLP":
        """`sizes`: inputs, the width once for every block, outputs. Embedding and reading start orthogonal,
        blocks with a variance of 2/inputs, as He et al. have it, and biases at 0."""
        inputs, *widths, outputs = sizes
        inside = [size for width in widths for size in (width, EXPANSION * width)]
        drawn = init_dense(key, (inputs, *inside, widths[-1], outputs))
        first, *between, last = (weight for weight, _ in drawn)
        he = [math.sqrt(6) * weight for weight in between]  # uniform in ±√(6/inputs)
        return ResidualMLP(
            embed=_unbiased(_orthogonal(first)),
            blocks=[_unbiased(*pair) for pair in zip(he[::2], he[1::2], strict=True)],
            read=_unbiased(_orthogonal(last)),
        )

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(normalise(x))
        return self.read(normalise(x))

    def layers(self) -> MLP:
        """All of them in their order: not a network, but what its arrays are called by."""
        parts = [self.embed, *self.blocks, self.read]
        weights = [weight for part in parts for weight in part.weights]
        return MLP(weights, [bias for part in parts for bias in part.biases])


def _unbiased(*weights: Float[Array, "_I _O"]) -> MLP:
    return MLP(list(weights), [jnp.zeros(weight.shape[1]) for weight in weights])


def _orthogonal(weight: Float[Array, "I O"]) -> Float[Array, "I O"]:
    """Rows or columns, whichever are fewer, made orthogonal and of length 1."""
    if weight.shape[0] < weight.shape[1]:
        return _orthogonal(weight.T).T
    columns, mixture = jnp.linalg.qr(weight)
    # Which way a column points is up to QR, and not random: let it be the way it was drawn.
    return columns * jnp.broadcast_to(jnp.sign(jnp.diag(mixture)), columns.shape)
