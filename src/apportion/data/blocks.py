"""Sums over the rows of a full replay without a copy of it: some thousand rows at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK = 4096  # rows


def summed(
    rows: Float[Array, "N S"],
    weights: Float[Array, "K N"],
    of: Callable[[Float[Array, "B S"]], Float[Array, "B S"]],
) -> Float[Array, "K S"]:
    """Σ_n weights[k, n] · of(rows)[n], where `of` knows each row by itself."""
    count, size = rows.shape[0], min(BLOCK, rows.shape[0])

    def add(block: int | Array, total: Float[Array, "K S"]) -> Float[Array, "K S"]:
        first = jnp.minimum(block * size, count - size)  # the last block has rows of the one before, too
        fresh: Bool[Array, B] = first + jnp.arange(size) >= block * size
        part = jax.lax.dynamic_slice_in_dim(weights, first, size, axis=1)
        part = jnp.where(fresh[None, :], part, 0.0)
        # A GPU would round what it multiplies.
        found = of(jax.lax.dynamic_slice_in_dim(rows, first, size))
        return total + jnp.matmul(part, found, precision="highest")

    return jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros((weights.shape[0], rows.shape[1])))
