"""A network that reads steps one after another, and says something after each."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.nn.networks import dense, init_dense


class LSTM(eqx.Module):
    """The LSTM of RUDDER: no forget gate and no output gate, so what a cell took in stays there.

    c_t = c_{t-1} + σ(V tanh(c_{t-1}) + d) ⊙ tanh(W x_t + b) / √T, and y_t = u·c_t + e after every step.
    What a cell takes in depends on the step alone, how much of it on the cells alone.
    """

    weight: Float[Array, "I H"]
    bias: Float[Array, "H"]
    gate_weight: Float[Array, "H H"]
    gate_bias: Float[Array, "H"]
    out_weight: Float[Array, "H 1"]
    out_bias: Float[Array, "1"]

    @staticmethod
    def init(key: PRNGKeyArray, inputs: int, cells: int) -> "LSTM":
        layers = init_dense(key, (inputs, cells, cells, 1))
        (weight, bias), (gate_weight, gate_bias), (out_weight, out_bias) = layers
        # Gates start nearly shut, as in the authors' code: first little is taken in, then what helps.
        return LSTM(weight, bias, gate_weight, gate_bias - 2.0, out_weight, out_bias)

    def __call__(
        self, x: Float[Array, "M T I"], starts: Bool[Array, "M T"] | None = None
    ) -> Float[Array, "M T"]:
        """What it says after each step, having seen no later one; none before a step where it starts anew."""
        # Scaled by the most steps that there can be, sums of steps start at the size of one, for any T.
        taken = jnp.tanh(dense(x, self.weight, self.bias)) / math.sqrt(x.shape[1])

        goes_on = jnp.ones(x.shape[:2], x.dtype) if starts is None else (~starts).astype(x.dtype)

        def step(cells: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            taken, goes_on = now
            cells = cells * goes_on[:, None]
            cells = cells + jax.nn.sigmoid(dense(jnp.tanh(cells), self.gate_weight, self.gate_bias)) * taken
            return cells, cells

        inputs = (jnp.swapaxes(taken, 0, 1), goes_on.T)
        _, cells = jax.lax.scan(step, jnp.zeros_like(taken[:, 0]), inputs)
        return jnp.squeeze(dense(jnp.swapaxes(cells, 0, 1), self.out_weight, self.out_bias), axis=-1)
