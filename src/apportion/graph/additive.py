"""A reward that is a sum of simple functions of single dimensions, as arrays that live in a lane's state.

It comes from segment totals in closed form: additive_fit.py, which a process without JAX can import.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from apportion.graph.additive_fit import FUNCTIONS, Fitted, functions


class Additive(NamedTuple):
    """The reward as arrays. Errors count segments by their length."""

    mean: Float[Array, "D"]
    std: Float[Array, "D"]
    weights: Float[Array, "D K"]  # 0 where a dimension has no say
    offset: Float[Array, ""]
    error: Float[Array, ""]  # what is left of a segment's mean reward, as standard deviation

    @classmethod
    def of(cls, fitted: Fitted) -> "Additive":
        return cls(*(jnp.asarray(array) for array in fitted))


def zero(dims: int) -> Additive:
    """No reward anywhere, and an error of 1."""
    nothing = jnp.zeros(())
    return Additive(jnp.zeros(dims), jnp.ones(dims), jnp.zeros((dims, FUNCTIONS)), nothing, jnp.ones(()))


def predict(model: Additive, x: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """b + Σ_d Σ_k w_dk φ_k(x_d)."""
    shape = x.shape
    z = (x - jnp.broadcast_to(model.mean, shape)) / jnp.broadcast_to(model.std, shape)
    terms = [f * jnp.broadcast_to(model.weights[:, k], shape) for k, f in enumerate(functions(z, jnp))]
    return model.offset + jnp.sum(sum(terms[1:], terms[0]), axis=-1)
