"""Lanes that are vmapped together take a branch only if one of them needs it."""

import jax
import jax.numpy as jnp
import numpy as np

from apportion.nn.lanes import choose, in_any_lane


def _careful(number: jax.Array) -> jax.Array:
    """The root of even numbers, and others as they are."""
    due = number % 2 == 0

    def root() -> jax.Array:
        return choose(due, jnp.sqrt(number.astype(jnp.float32)), number.astype(jnp.float32))

    return jax.lax.cond(in_any_lane(due), root, lambda: number.astype(jnp.float32))


def test_the_branch_stays_a_branch() -> None:
    """Also inside of a scan: else its work would be done at every turn."""

    def scan(start: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda n, _: (n + 1, _careful(n)), start, None, length=3)[1]

    program = str(jax.make_jaxpr(jax.vmap(scan))(jnp.arange(2)))
    assert "cond[" in program
    found = jax.vmap(scan)(jnp.asarray([0, 1]))
    np.testing.assert_allclose(found, [[0, 1, 2**0.5], [1, 2**0.5, 3]], rtol=1e-6)
