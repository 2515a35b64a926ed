"""Which reward teaches the policy: the one within the edges found, or the one that sees everything?

Every eighth segment is kept from both networks. Their errors on those segments decide: while the restricted
reward fits them clearly worse, an edge is missing or its additive part misleads, and the policy gets the
unrestricted one, together with every dimension of the state.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ONE_IN = 8  # segments, of which one is held out
MEMORY = 50  # held-out segments that the running errors remember
ENOUGH = 0.2  # of their weight, before which nothing is decided
WORSE, NO_WORSE = 1.3, 1.05  # ratios of squared errors at which the policy's reward changes

RESTRICTED, FREE = 0, 1  # places of the two rewards, wherever they stand side by side


class Judge(NamedTuple):
    squares: Float[Array, "2"]  # running sums of squared held-out errors, of both rewards,
    weight: Float[Array, ""]  # and their weight; both fade
    free: Float[Array, ""]  # 1 while the policy gets the unrestricted reward


def start() -> Judge:
    """Nothing known: the restricted reward, whose edges are all on at the start."""
    return Judge(jnp.zeros(2), jnp.zeros(()), jnp.zeros(()))


def held_out(number: Int[Array, "M"]) -> Bool[Array, "M"]:
    """Segments that no network learns from, by their number since the start of training."""
    return number % ONE_IN == 0


def watch(judge: Judge, errors: Float[Array, "2 M"], importance: Float[Array, "M"]) -> Judge:
    """After some more segments: their errors, and how much each counts (0: not held out)."""
    amount = jnp.sum(importance)
    now = jnp.sum(errors**2 * importance[None, :], axis=1) / jnp.maximum(amount, 1e-6)
    rate = jnp.minimum(1.0, jnp.sum((importance > 0).astype(amount.dtype)) / MEMORY)
    squares = judge.squares + rate * (now - judge.squares)
    weight = judge.weight + rate * (1 - judge.weight)
    ratio = squares[RESTRICTED] / jnp.maximum(squares[FREE], 1e-30)
    decided = jnp.where(ratio > WORSE, 1.0, jnp.where(ratio < NO_WORSE, 0.0, judge.free))
    return Judge(squares, weight, jnp.where(weight > ENOUGH, decided, judge.free))


def root_errors(judge: Judge) -> Float[Array, "2"]:
    """Root mean squares of the held-out errors, of both rewards."""
    return jnp.sqrt(judge.squares / jnp.maximum(judge.weight, 1e-6))
