"""A fixed number of whole segments, those with the highest score: the best episodes, or the hardest.

What a method remembers is its own: it outlives the replay. The hidden reward is not remembered.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Segments, Transitions

EMPTY = np.finfo(np.float32).min  # the score of nothing: below all others, and still finite


class Memory(NamedTuple):
    """K places, the best first, empty ones at the end."""

    observations: Float[Array, "K T+1 S"]
    actions: Float[Array, "K T A"]
    length: Int[Array, "K"]  # 0 where the place is empty
    total: Float[Array, "K"]
    terminated: Bool[Array, "K"]
    number: Int[Array, "K"]
    score: Float[Array, "K"]


class Centres(NamedTuple):
    """Observations that others are compared with. They follow the learners' units, as a memory does."""

    observations: Float[Array, "K S"]
    unit: Float[Array, "S"]  # in which distances count: one of the moment of the comparison, in those of now


def init(spec: Spec, size: int) -> Memory:
    """Nothing yet, in so many places."""
    steps = spec.max_segment_steps
    return Memory(
        observations=jnp.zeros((size, steps + 1, spec.observation_size)),
        actions=jnp.zeros((size, steps, spec.action_size)),
        length=jnp.zeros(size, jnp.int32),
        total=jnp.zeros(size),
        terminated=jnp.zeros(size, jnp.bool_),
        number=jnp.full(size, -1, jnp.int32),
        score=jnp.full(size, EMPTY),
    )


def filled(memory: Memory) -> Bool[Array, "K"]:
    """Which places hold a segment."""
    return memory.length > 0


def offer(memory: Memory, segments: Segments, scores: Float[Array, "M"]) -> Memory:
    """Keep the segments with the highest scores, old and new, each once: its newest score counts.

    A score that is not finite offers nothing.
    """
    offered = jnp.isfinite(scores)
    scores = jnp.where(offered, scores, EMPTY)
    again = (memory.number[:, None] == segments.number[None, :]) & offered[None, :]
    copies = (segments.number[:, None] == segments.number[None, :]) & offered[None, :]
    later = jnp.triu(jnp.ones_like(copies), k=1)
    newest = jnp.where(jnp.any(copies & later, axis=1), EMPTY, scores)
    kept = jnp.where(jnp.any(again, axis=1), EMPTY, memory.score)
    new = Memory(**{name: getattr(segments, name) for name in Memory._fields[:-1]}, score=newest)
    everything = jax.tree.map(lambda *x: jnp.concatenate(x), memory._replace(score=kept), new)
    score, places = jax.lax.top_k(everything.score, memory.score.shape[0])
    best = jax.tree.map(lambda x: x[places], everything)
    empty = score == EMPTY
    return best._replace(
        length=jnp.where(empty, 0, best.length),
        total=jnp.where(empty, 0.0, best.total),
        number=jnp.where(empty, -1, best.number),
    )


def draw_segments(memory: Memory, count: int, key: PRNGKeyArray) -> Segments:
    """So many segments, all as likely; without a single step where there are none."""
    chosen = jax.random.randint(key, (count,), 0, jnp.maximum(jnp.sum(filled(memory)), 1))
    return all_segments(jax.tree.map(lambda x: x[chosen], memory))


def all_segments(memory: Memory) -> Segments:
    """What is in each place; without a single step where it is empty."""
    steps = memory.actions.shape[1]
    mask = jnp.arange(steps)[None, :] < memory.length[:, None]
    known = {name: column for name, column in memory._asdict().items() if name != "score"}
    return Segments(**known, true_rewards=jnp.full(mask.shape, jnp.nan), mask=mask)


def draw_transitions(memory: Memory, count: int, key: PRNGKeyArray) -> Transitions:
    """So many steps, all as likely. From an empty memory come steps that end and pay nothing."""
    ends = jnp.cumsum(memory.length)
    step = jax.random.randint(key, (count,), 0, jnp.maximum(ends[-1], 1))
    # In an empty memory no place reaches past the step, and it wraps around to the first.
    place = jnp.searchsorted(ends, step, side="right") % ends.shape[0]
    length = jnp.maximum(memory.length[place], 1)
    position = jnp.minimum(step - (ends[place] - memory.length[place]), length - 1)
    last, total = position == length - 1, memory.total[place]
    return Transitions(
        observation=memory.observations[place, position],
        action=memory.actions[place, position],
        next_observation=memory.observations[place, position + 1],
        paid=jnp.where(last, total, 0.0),
        true_reward=jnp.full(count, jnp.nan),
        terminated=last & (memory.terminated[place] | (memory.length[place] == 0)),
        segment_total=total,
        segment_length=length,
        step_in_segment=position,
        step_in_episode=position,  # as if no step had gone before the segment
        credit=total / length.astype(total.dtype),
    )
