"""IRCR, Iterative Relative Credit Refinement (Gangwani et al., NeurIPS 2020): no reward is learned.

A segment's total, shared equally among its steps, is the reward of each; where a step comes up in many
segments, the critic takes the mean. Rewards are scaled to [0, 1] by the worst and best segments known, and
half of what the policy learns from comes out of the best episodes ever.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import at_least, check
from apportion.core.spec import Spec
from apportion.core.types import Batch, EpisodeMemory, Method, Metrics, Sampling, Survey, Transitions
from apportion.data import memory as memories
from apportion.data.memory import Memory


@dataclass(frozen=True)
class Config:
    """IRCR: each step gets its segment's mean reward, relative to the worst and best known."""

    best: int = 10
    """Segments with the highest totals ever that are remembered."""
    best_share: float = 0.5
    """Share of the policy's batch that comes from the best segments, on top of the backbone's batch size."""
    credit: Literal["mean", "sum"] = "mean"
    """What is scaled to [0, 1]: the total per step, or the plain total (the RRD authors' variant)."""

    def __post_init__(self) -> None:
        at_least(self, "method.", best=1)
        check(0 <= self.best_share < 1, f"method.best_share={self.best_share} must be in [0, 1)")


class State(NamedTuple):
    lowest: Float[Array, ""]  # of all segments in the replay and in the memory
    highest: Float[Array, ""]
    best: Memory


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        nothing = jnp.zeros(())
        return State(nothing, nothing, memories.init(spec, config.best))

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        return state, {}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        value = worth(transitions.segment_total, transitions.segment_length, config.credit)
        return relative(value, state.lowest, state.highest)

    def survey(state: State, found: Survey) -> State:
        best = remember_best(state.best, found)
        lowest, highest = bounds(found, best, config.credit)
        return state._replace(lowest=lowest, highest=highest, best=best)

    def recall(state: State, count: int, key: PRNGKeyArray) -> Transitions:
        more = round(count * config.best_share / (1 - config.best_share))
        return memories.draw_transitions(state.best, more, key)

    return Method(
        init,
        update,
        reward,
        Sampling(),
        memory=EpisodeMemory(survey, recall if config.best_share > 0 else None),
        rescale=rescale,
    )


def rescale(state: State, factor: Float[Array, ""], shift: Float[Array, ""]) -> State:
    """All that segments are compared by; the shift is what networks begin with, and there are none."""
    score = jnp.where(memories.filled(state.best), state.best.score * factor, state.best.score)
    return state._replace(
        lowest=state.lowest * factor,
        highest=state.highest * factor,
        best=state.best._replace(score=score),
    )


def worth(total: Float[Array, "*B"], length: Int[Array, "*B"], credit: str) -> Float[Array, "*B"]:
    """total / T, or the total itself."""
    # Padding of evaluation episodes has no length.
    return total / jnp.maximum(length, 1).astype(total.dtype) if credit == "mean" else total


def relative(
    value: Float[Array, "*B"], lowest: Float[Array, ""], highest: Float[Array, ""]
) -> Float[Array, "*B"]:
    """(value - lowest) / (highest - lowest).

    Where all segments are worth the same, there is nothing to be relative to: the value's sign, so that a
    task that pays for each step (CartPole) still rewards a long life, and one that charges a short one.
    """
    # Sums of equal rewards over different lengths differ by rounding, which must not be blown up to [0, 1].
    differ = highest - lowest > 1e-5 * jnp.maximum(jnp.abs(lowest), jnp.abs(highest))
    return jnp.where(differ, (value - lowest) / jnp.where(differ, highest - lowest, 1.0), jnp.sign(value))


def remember_best(best: Memory, found: Survey) -> Memory:
    """Those with the highest totals ever. Each new segment is in the replay when this is asked."""
    totals = jnp.where(found.live, found.total, -jnp.inf)
    scores, places = jax.lax.top_k(totals, min(best.score.shape[0], totals.shape[0]))
    return memories.offer(best, found.gather(places), scores)


def bounds(found: Survey, best: Memory, credit: str) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The lowest and highest worth of all segments in the replay and in the memory."""
    values = jnp.concatenate(
        [worth(found.total, found.length, credit), worth(best.total, best.length, credit)]
    )
    real = jnp.concatenate([found.live, memories.filled(best)])
    lowest = jnp.min(jnp.where(real, values, jnp.inf))
    highest = jnp.max(jnp.where(real, values, -jnp.inf))
    return lowest, highest
