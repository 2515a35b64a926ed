"""SimBa's network (Lee et al., 2025): a straight path from input to output, to which residual blocks add."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.nn.networks import MLP, normalise

EXPANSION = 4  # a block's hidden layer is so many times as wide as the path


class ResidualMLP(eqx.Module):
    """x ← embed(x), then x ← x + block(x̂) for every block, then read(x̂), where x̂ is x after a layer norm."""

    embed: MLP  # of one layer
    blocks: list[MLP]  # of two layers each, the first of them EXPANSION times as wide as x
    read: MLP  # of one layer

    @staticmethod
    def init(key: PRNGKeyArray, sizes: Sequence[int]) -> "ResidualMLP":
        """`sizes`: inputs, the width once for every block, outputs. Embedding and reading start orthogonal,
        blocks as He et al. have it, biases at 0."""
        inputs, *widths, outputs = sizes
        width, inside, count = widths[0], EXPANSION * widths[0], len(widths)
        embed_key, widen_key, narrow_key, read_key = jax.random.split(key, 4)
        orthogonal, he = jax.nn.initializers.orthogonal(), jax.nn.initializers.he_normal(batch_axis=0)
        # All blocks come from one draw: each shape of random numbers takes time to compile.
        widen = he(widen_key, (count, width, inside))
        narrow = he(narrow_key, (count, inside, width))
        return ResidualMLP(
            embed=_without_biases([orthogonal(embed_key, (inputs, width))]),
            blocks=[_without_biases([widen[i], narrow[i]]) for i in range(count)],
            read=_without_biases([orthogonal(read_key, (width, outputs))]),
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


def _without_biases(weights: list[Array]) -> MLP:
    """They are learned from 0."""
    return MLP(weights, [jnp.zeros(weight.shape[1]) for weight in weights])
