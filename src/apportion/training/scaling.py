"""Units do not matter: what learners see is brought to size one by a lane's own data.

Observations are standardised by the mean and spread of the replay, measured again each time the number of
segments has grown by a quarter: between two measurements nothing moves under the learners. What is paid keeps
its unit unless that is far from the size of rewards; then methods, whose networks start at size one, learn in
a unit of the lane's own, and are rescaled where it moves, as PopArt does (van Hasselt et al., 2016). So do
backbones, whose values and temperature start there too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from apportion.core.spec import Spec
from apportion.core.types import Batch, Record, Returns, Segments, Survey, Transitions
from apportion.data.memory import Centres, Memory
from apportion.data.replay import Replay, summed, times
from apportion.data.replay import survey as survey_of
from apportion.envs.acting import FARTHEST, standardise
from apportion.envs.make import TimeUp
from apportion.nn.lanes import choose
from apportion.nn.renorm import Statistics

Model = TypeVar("Model")
Policy = TypeVar("Policy")

FIRST, GROWTH = 150 / 256, 2 ** (1 / 3)  # segments at the first measurement, and until the next: see Revision
# Methods take pay as it comes where some segment's differs by more than the first from what is usual, for one
# step may have earned that, and where a step's part of how segments differ is below the second.
USUAL_PAY = (0.5, 10.0)
STANDS_OUT = 10.0  # spreads that the mean of rewards is away from 0 when learners are better off without it


class Sizes(NamedTuple):
    """Of discounted returns up to each step of an episode: running means, and their running maximum."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    largest: Float[Array, ""]  # absolute one, over what it can be for the backbone; falls slowly
    looks: Int[Array, ""]  # so many were taken


class Scaling(NamedTuple):
    """What was measured of one lane."""

    mean: Float[Array, "S"]
    scale: Float[Array, "S"]  # one over the spread; 1 where a dimension has not varied
    reward_square: Float[Array, ""]  # running mean of (r̂ - level)²; 0 before the first
    level: Float[Array, ""]  # of rewards that hardly differ from each other, where that is nobody's doing
    unit: Float[Array, ""]  # of what is paid, as methods see it; 0: nothing was paid yet
    settled: Bool[Array, ""]  # whether enough was paid to tell: from then on the unit hardly ever moves
    clocks: Float[Array, "S"] | None = None  # 1 for dimensions that tell the time; None: nobody asks
    returns: Sizes | None = None  # None: nobody asks


def unknown(spec: Spec, clocks: bool = False, returns: bool = False) -> Scaling:
    """Before anything was measured: observations as they are."""
    states = spec.observation_size
    nothing, zero = jnp.zeros(states), jnp.zeros(())
    sizes = Sizes(zero, zero, zero, jnp.zeros((), jnp.int32)) if returns else None
    no = jnp.asarray(False)
    return Scaling(nothing, jnp.ones(states), zero, zero, zero, no, nothing if clocks else None, sizes)


def measured(scaling: Scaling, replay: Replay) -> Scaling:
    """With mean and spread of all observations in the replay, those among them that tell the time, and the
    unit of what was paid."""
    live = (jnp.arange(replay.observation.shape[0]) <= replay.rows).astype(replay.observation.dtype)
    share = (live / jnp.sum(live))[None, :]
    # Relative to one of them: sums of large numbers that hardly differ would lose the difference.
    origin = replay.observation[0]
    [mean] = summed(replay.observation, share, lambda rows: rows - origin[None, :])
    [variance] = summed(replay.observation, share, lambda rows: (rows - origin[None, :] - mean[None, :]) ** 2)
    away = jnp.abs(replay.observation - origin[None, :] - mean[None, :]) * live[:, None]
    # Nothing that was seen is to be cut: what has hardly moved, but for once, counts by how far it went.
    spread = jnp.maximum(jnp.sqrt(variance), jnp.max(away, axis=0) / FARTHEST)
    # Rounding is no variation, nor is the 1e-8 that a simulator's arithmetic leaves of nothing.
    varies = spread > jnp.maximum(1e-6 * jnp.abs(origin + mean), 1e-8)
    scale = jnp.where(varies, 1 / jnp.where(varies, spread, 1.0), 1.0)
    telling = None if scaling.clocks is None else clock_dimensions(replay)
    found, settled = _unit(scaling, survey_of(replay, 1))
    return scaling._replace(mean=origin + mean, scale=scale, unit=found, settled=settled, clocks=telling)


# --- Observations


def observations(scaling: Scaling | None, x: Float[Array, "*B S"]) -> Float[Array, "*B S"]:
    """(x - mean) / spread, never farther than ±10; as they are where nobody asked for it."""
    if scaling is None:
        return x
    mean, scale = (jnp.broadcast_to(part, x.shape) for part in (scaling.mean, scaling.scale))
    return jnp.clip((x - mean) * scale, -FARTHEST, FARTHEST)


# --- All that learners see


def transitions(scaling: Scaling | None, raw: Transitions) -> Transitions:
    if scaling is None:
        return raw
    return _told(raw, 1 / unit(scaling), lambda x: observations(scaling, x))


def own_transitions(scaling: Scaling | None, seen: Transitions) -> Transitions:
    """Those that learners have seen, in the environment's units again."""
    if scaling is None:
        return seen

    def own(x: Float[Array, "*B S"]) -> Float[Array, "*B S"]:
        return x / jnp.broadcast_to(scaling.scale, x.shape) + jnp.broadcast_to(scaling.mean, x.shape)

    return _told(seen, unit(scaling), own)


def _told(steps: Transitions, factor: Float[Array, ""], seen: Callable[[Array], Array]) -> Transitions:
    """With all that is paid, or has been credited, times a factor, and with observations as `seen`."""
    return steps._replace(
        observation=seen(steps.observation),
        next_observation=seen(steps.next_observation),
        paid=steps.paid * factor,
        true_reward=steps.true_reward * factor,
        segment_total=steps.segment_total * factor,
        credit=steps.credit * factor,
    )


def segments(scaling: Scaling | None, raw: Segments) -> Segments:
    if scaling is None:
        return raw
    return raw._replace(
        observations=observations(scaling, raw.observations),
        true_rewards=raw.true_rewards / unit(scaling),
        total=raw.total / unit(scaling),
    )


def batch(scaling: Scaling | None, raw: Batch) -> Batch:
    parts = None if raw.segments is None else segments(scaling, raw.segments)
    return Batch(parts, transitions(scaling, raw.transitions))


def survey(scaling: Scaling | None, raw: Survey) -> Survey:
    if scaling is None:
        return raw
    return raw._replace(
        total=raw.total / unit(scaling), gather=lambda places: segments(scaling, raw.gather(places))
    )


def record(scaling: Scaling | None, raw: Record) -> Record:
    """One segment on the host."""
    if scaling is None:
        return raw
    mean, scale = np.asarray(scaling.mean), np.asarray(scaling.scale)
    total = raw.total / (float(scaling.unit) or 1.0)
    return raw._replace(observations=standardise(raw.observations, mean, scale), total=total)


def remembered(before: Scaling, now: Scaling, model: Model) -> Model:
    """A method's state with the observations that it keeps in other units: it has seen them in those before.

    In one step, for large means would take what is small with them. What was cut stays so.
    """
    ratio, shift = _change(before, now)

    def one(node: Any) -> Any:
        if not isinstance(node, (Memory, Centres)):
            return node
        seen = node.observations
        seen = seen * jnp.broadcast_to(ratio, seen.shape) + jnp.broadcast_to(shift, seen.shape)
        node = node._replace(observations=jnp.clip(seen, -FARTHEST, FARTHEST))
        if isinstance(node, Centres):
            return node._replace(unit=node.unit * ratio)
        return node._replace(total=node.total * (unit(before) / unit(now)))

    return jax.tree.map(one, model, is_leaf=lambda node: isinstance(node, (Memory, Centres)))


def followed(before: Scaling, now: Scaling, policy: Policy, seen: Float[Array, "S"]) -> Policy:
    """A backbone's state whose running statistics of observations are in other units: to networks that
    normalise their inputs the same observation stays the same. What a policy may not see is 0 in any unit;
    statistics of nothing stay as they start."""
    ratio, shift = _change(before, now)
    states = len(ratio)

    def one(node: Any) -> Any:
        if not isinstance(node, Statistics):
            return node
        mean, variance = node.means[0], node.variances[0]  # of states, then of actions where these are inputs
        factor, more, wider = (
            jnp.broadcast_to(x, mean[..., :states].shape) for x in (ratio, shift * seen, ratio**2)
        )
        means = [mean.at[..., :states].multiply(factor).at[..., :states].add(more), *node.means[1:]]
        variances = [variance.at[..., :states].multiply(wider), *node.variances[1:]]
        return choose(jnp.any(node.batches > 0), node._replace(means=means, variances=variances), node)

    return jax.tree.map(one, policy, is_leaf=lambda node: isinstance(node, Statistics))


def _change(before: Scaling, now: Scaling) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """What standardised observations are multiplied with, and what is added then, from unit to unit."""
    return now.scale / before.scale, (before.mean - now.mean) * now.scale


def clocks(scaling: Scaling | None) -> Float[Array, "S"] | None:
    """1 for dimensions that tell the time, where anybody asked."""
    return None if scaling is None else scaling.clocks


# --- What is paid, and rewards


def unit(scaling: Scaling | None) -> Float[Array, ""]:
    """Of what methods are paid, and of the rewards that they find."""
    if scaling is None:
        return jnp.ones(())
    return jnp.where(scaling.unit != 0, scaling.unit, 1.0)


def _unit(scaling: Scaling, found: Survey) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Of segments in the environment's own unit, and whether that is settled. The first that pay anything
    settle it; it moves again only where pay has outgrown it. Fewer than are enough serve for now."""
    live, lengths = (part.astype(found.total.dtype) for part in (found.live, found.length))
    count = jnp.maximum(jnp.sum(live), 1.0)
    length = jnp.maximum(jnp.sum(lengths * live) / count, 1.0)
    most = jnp.max(jnp.abs(found.total) * live)
    totals = found.total / jnp.where(most > 0, most, 1.0)  # squares of small numbers would be none
    rest = totals - jnp.sum(totals * live) / (length * count) * lengths
    # How fewer than four segments differ says little. Too large a unit does no harm for a while, but updates
    # by sums of a million leave Adam a memory of slopes beside which those that follow, in a unit that fits,
    # are nothing.
    few = jnp.sum(live) < 4
    alike = jnp.max(jnp.abs(rest) * live) < 1e-5  # but for rounding
    rest = jnp.where(few | alike, totals, rest)
    largest, spread = jnp.max(jnp.abs(rest) * live), jnp.sqrt(jnp.sum(rest**2 * live) / count)
    step = most * spread / jnp.sqrt(length)
    unusual = (most * largest < USUAL_PAY[0]) | (step > USUAL_PAY[1])
    first = jnp.where(unusual, step, 1.0)
    # What was learned in a unit that a step's part has a thousand times does not count any more.
    later = jnp.where(~few & (step > 1_000.0 * scaling.unit), step, scaling.unit)
    paid = most > 0
    now = jnp.where(paid, jnp.where(scaling.settled, later, first), scaling.unit)
    return now, scaling.settled | (paid & ~few)


def rate(before: Scaling, now: Scaling, replay: Replay) -> Float[Array, ""]:
    """What a step is paid, whichever it is, when the unit of pay is settled, and in that unit, where networks
    that start at size one would be long in coming there; else 0."""
    found = survey_of(replay, 1)
    live = found.live.astype(found.total.dtype)
    steps = jnp.maximum(jnp.sum(found.length.astype(live.dtype) * live), 1.0)
    paid = jnp.sum(found.total / unit(now) * live) / steps
    settles = ~before.settled & now.settled
    return jnp.where(settles & (jnp.abs(paid) > STANDS_OUT), paid, 0.0)


def in_unit(scaling: Scaling, factor: Float[Array, ""]) -> Scaling:
    """With rewards that are so many times as large."""
    sizes = scaling.returns
    if sizes is not None:
        mean, square, largest = sizes.mean * factor, sizes.square * factor**2, sizes.largest * factor
        sizes = Sizes(mean, square, largest, sizes.looks)
    square, level = scaling.reward_square * factor**2, scaling.level * factor
    return scaling._replace(reward_square=square, level=level, returns=sizes)


def watched(scaling: Scaling, rewards: Float[Array, "B"], ended: Bool[Array, ""]) -> Scaling:
    """With some more rewards in their running mean square, which is slow to fall, and with their level when
    they are seen first: a constant for each step, which no policy can change until an episode has ended by
    itself."""
    mean, spread = jnp.mean(rewards), jnp.std(rewards)
    size = jnp.abs(mean)  # networks that have learned nothing yet are near 0, and differ less
    stands_out = (size > jnp.maximum(STANDS_OUT * spread, 1.0)) & (spread > 1e-6 * size)
    found = jnp.where(stands_out & (scaling.reward_square == 0), mean, scaling.level)
    level = jnp.where(ended, 0.0, found)
    now, before = jnp.mean((rewards - level) ** 2), scaling.reward_square
    # Upwards at once: while a reward model finds its size, no value may be learned from outsized rewards.
    square = jnp.maximum(now, before + 0.1 * (now - before))
    return scaling._replace(reward_square=square, level=level)


def watched_returns(
    scaling: Scaling,
    rewards: Float[Array, "W K"],
    begins: Bool[Array, "W K"],
    real: Bool[Array, "W K"],
    wanted: Returns,
) -> Scaling:
    """With the sizes of more returns, along W runs of consecutive steps, of which real ones come first."""
    sizes = scaling.returns
    assert sizes is not None
    found = returns_along(rewards - scaling.level, begins, wanted.discount)
    counted = real.astype(found.dtype)
    weights = counted / jnp.sum(counted)
    largest = jnp.max(jnp.abs(found) * counted) / wanted.largest
    looks = sizes.looks + 1
    share = jnp.maximum(1 / looks.astype(found.dtype), 0.01)  # all alike, then the last hundred or so
    falling = sizes.largest + share * (largest - sizes.largest)
    return scaling._replace(
        returns=Sizes(
            mean=sizes.mean + share * (jnp.sum(weights * found) - sizes.mean),
            square=sizes.square + share * (jnp.sum(weights * found**2) - sizes.square),
            # Upwards at once, as with rewards: beyond what a backbone can take, values are all alike.
            largest=jnp.maximum(largest, falling),
            looks=looks,
        )
    )


def returns_along(
    rewards: Float[Array, "W K"], begins: Bool[Array, "W K"], discount: float
) -> Float[Array, "W K"]:
    """G_t = γ G_{t-1} + r_t, which begins anew with each episode."""

    def together(early: tuple[Array, Array], late: tuple[Array, Array]) -> tuple[Array, Array]:
        return early[0] * late[0], early[1] * late[0] + late[1]

    kept = jnp.where(begins, 0.0, discount)
    return jax.lax.associative_scan(together, (kept, rewards), axis=1)[1]


def for_policy(scaling: Scaling | None, rewards: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Rewards from their level on, and of a size that backbones take as it comes."""
    return rewards if scaling is None else (rewards - scaling.level) * reward_factor(scaling)


def reward_factor(scaling: Scaling) -> Float[Array, ""]:
    """What rewards are multiplied with for the backbone: 1, unless their root mean square is below 0.1 or
    above 10. Where it has asked for the unit of returns, one over max(their spread, the largest one over what
    it can be)."""
    if scaling.returns is not None:
        _, square, largest, _ = scaling.returns
        spread = jnp.sqrt(jnp.maximum(square - scaling.returns.mean**2, 0.0))
        unit = jnp.maximum(spread, largest)
        return jnp.where(unit > 0, 1 / jnp.where(unit > 0, unit, 1.0), 1.0)
    size = jnp.sqrt(scaling.reward_square)
    return jnp.where(size > 0, jnp.clip(size, 0.1, 10.0) / jnp.where(size > 0, size, 1.0), 1.0)


# --- What it means that an episode's time is up: for a policy that can see it coming, the end. To Gymnasium a
# time limit is a pause: life would go on, so values look beyond it. But what an episode pays ends with it. A
# policy that is to earn most until then must know how much time is left, or the same state has two values. So
# the limit is an end where an observation tells the time, and a pause where none does.


class Limit(NamedTuple):
    """How long an episode may last, and what its end means then."""

    steps: int
    means: TimeUp


def over(limit: Limit, clocks: Float[Array, "S"] | None, transitions: Transitions) -> Bool[Array, "*B"]:
    """After which steps nothing counts any more."""
    up = transitions.step_in_episode + 1 == limit.steps
    if limit.means == "end":
        return transitions.terminated | up
    if limit.means == "pause" or clocks is None:
        return transitions.terminated
    return transitions.terminated | (up & jnp.any(clocks > 0))


def clock_dimensions(replay: Replay) -> Float[Array, "S"]:
    """1 for each observation that tells the time: it rises, or falls, by the same amount at every step, with
    a squared correlation above 0.999: known to a hundredth of an episode."""
    time, known = times(replay)
    rows, dtype = replay.observation, replay.observation.dtype
    share = known.astype(dtype) / jnp.maximum(jnp.sum(known), 1).astype(dtype)
    passed = time.astype(dtype)
    passed = passed - jnp.sum(share * passed)
    # Relative to one of them: sums of large numbers that hardly differ would lose the difference.
    origin = rows[:1]
    mean, both = summed(rows, jnp.stack([share, share * passed]), lambda rows: rows - origin)
    [alone] = summed(rows, share[None, :], lambda rows: (rows - origin - mean[None, :]) ** 2)
    return (both**2 > 0.999 * alone * jnp.sum(share * passed**2)).astype(dtype)
