"""Which reward teaches the policy: the one within the edges found, or the one that sees everything?

Nothing is fitted to every eighth segment, and the errors of both rewards on those segments decide. Where the
restricted reward fits them clearly better, it is trusted: the policy gets it alone, and sees only what
matters to it. Otherwise the policy gets a mixture of both, in which the worse one hardly counts, and sees
everything: an edge may be missing, or the additive part mislead.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

ONE_IN = 8  # segments, of which one is held out
MEMORY = 100  # held-out segments that the running errors remember
ENOUGH = 0.1  # of their weight, before which nothing is decided
BETTER, NO_BETTER = 0.6, 0.9  # ratios of squared errors at which trust begins, and at which it ends

Number = int | Int[Array, "M"]  # of one segment, or of several

RESTRICTED, FREE = 0, 1  # places of the two rewards, wherever they stand side by side


class Judge(NamedTuple):
    squares: Float[Array, "2"]  # running sums of squared held-out errors, of both rewards,
    weight: Float[Array, ""]  # and their weight; both fade
    trusted: Float[Array, ""]  # 1 while the policy gets the restricted reward alone


def start() -> Judge:
    """Nothing known yet: nothing is trusted."""
    return Judge(jnp.zeros(2), jnp.zeros(()), jnp.zeros(()))


def is_held_out(number: Number) -> Any:
    """Whether nothing is fitted to a segment, by its number since the start of training."""
    return number % ONE_IN == 0


def watch(judge: Judge, errors: Float[Array, "2 M"], importance: Float[Array, "M"]) -> Judge:
    """After some more segments: their errors, and how much each counts (0: not held out)."""
    amount = jnp.sum(importance)
    now = jnp.sum(errors**2 * importance[None, :], axis=1) / jnp.maximum(amount, 1e-6)
    rate = jnp.minimum(1.0, jnp.sum((importance > 0).astype(amount.dtype)) / MEMORY)
    squares = judge.squares + rate * (now - judge.squares)
    weight = judge.weight + rate * (1 - judge.weight)
    found = Judge(squares, weight, judge.trusted)
    ratio = _ratio(found)
    decided = jnp.where(ratio < BETTER, 1.0, jnp.where(ratio > NO_BETTER, 0.0, judge.trusted))
    return found._replace(trusted=jnp.where(weight > ENOUGH, decided, judge.trusted))


def share(judge: Judge) -> Float[Array, ""]:
    """Of the restricted reward in what the policy gets: 1 / (1 + ratio²), or all of it."""
    mixed = jnp.where(judge.weight > ENOUGH, 1 / (1 + _ratio(judge) ** 2), 0.5)
    return jnp.where(judge.trusted > 0, 1.0, mixed)


def root_errors(judge: Judge) -> Float[Array, "2"]:
    """Root mean squares of the held-out errors, of both rewards."""
    return jnp.sqrt(judge.squares / jnp.maximum(judge.weight, 1e-6))


def _ratio(judge: Judge) -> Float[Array, ""]:
    """Of squared held-out errors, restricted to free."""
    return judge.squares[RESTRICTED] / jnp.maximum(judge.squares[FREE], 1e-30)
