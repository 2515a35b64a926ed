"""Return equivalence by construction: r̂ moved evenly, so that each segment's sum is what it paid.

A sampled step does not know the rest of its segment. So whenever an update has drawn a segment, the replay
keeps by how much its rewards are moved; until then, and wherever no segment is known, they stay as they are.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from apportion.core.types import Method, Segments, State, Transitions
from apportion.nn.segments import remainder, sum_exactly


def exact_sum(method: Method) -> Method:
    """The method with rewards that sum exactly. Its state is the same."""
    judge = method.credit

    if judge is not None:  # the replay keeps its rewards themselves

        def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
            return sum_exactly(judge(state, segments), segments)

        return method._replace(credit=credit)

    def rewards_of(state: State, segments: Segments) -> Float[Array, "M T"]:
        return method.reward(state, steps_of(segments))

    def moved(state: State, segments: Segments) -> Float[Array, "M T"]:
        return sum_exactly(rewards_of(state, segments), segments)

    def kept(state: State, segments: Segments) -> Float[Array, "M T"]:
        move = remainder(rewards_of(state, segments), segments) + mean_reward(segments)
        return jnp.broadcast_to(move[:, None], segments.mask.shape)

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        move = transitions.credit - _usual_credit(transitions)
        return method.reward(state, transitions) + move

    return method._replace(reward=reward, credit=moved, kept=kept)


def steps_of(segments: Segments) -> Transitions:
    """All steps of some segments, [M, T]; what stands in the padding means nothing."""
    shape = segments.mask.shape
    last = jnp.arange(shape[1])[None, :] == segments.length[:, None] - 1
    steps = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32)[None, :], shape)

    def each_step(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], shape)

    return Transitions(
        observation=segments.observations[:, :-1],
        action=segments.actions,
        next_observation=segments.observations[:, 1:],
        paid=jnp.where(last, segments.total[:, None], 0.0),
        true_reward=segments.true_rewards,
        terminated=last & segments.terminated[:, None],
        segment_total=each_step(segments.total),
        segment_length=each_step(segments.length),
        step_in_segment=steps,
        step_in_episode=steps,  # as if no step had gone before the segment
        credit=each_step(mean_reward(segments)),
    )


def mean_reward(segments: Segments) -> Float[Array, "M"]:
    return segments.total / jnp.maximum(segments.length, 1).astype(segments.total.dtype)


def _usual_credit(transitions: Transitions) -> Float[Array, "*B"]:
    """What a step's credit is until its segment has been drawn: the segment's mean reward."""
    length = jnp.maximum(transitions.segment_length, 1).astype(transitions.segment_total.dtype)
    return transitions.segment_total / length
