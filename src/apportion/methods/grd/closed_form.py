"""GRD in closed form: edges come from regression on all episodes so far, and so does most of the reward; a
network within the edges learns the rest of it. There is no dynamics network.

Beside it learns a second network that sees everything: also where a step led, and whether it ended the
episode. Segments held out from both decide which of the two rewards the policy gets (judge.py).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import (
    Batch,
    Edges,
    GraphView,
    Method,
    Metrics,
    Record,
    Revision,
    Sampling,
    Segments,
    Transitions,
)
from apportion.graph import ENOUGH_SEGMENTS, additive, looking
from apportion.graph.additive import Additive
from apportion.methods.grd import judge as judges
from apportion.methods.grd.judge import FREE, RESTRICTED, Judge
from apportion.methods.grd.parts import (
    Config,
    Looked,
    after,
    all_edges,
    compact,
    nothing_looked_at,
    reward_mask,
    search_due,
    seen_in,
    shares_on,
)
from apportion.nn import losses, optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser

STEPS = 4000  # in the segments of one update
RATE = 1e-3  # Adam's step


class Rewards(NamedTuple):
    """Two rewards side by side, restricted and free: every array has a leading axis of 2."""

    networks: MLP  # of [s, a, s' - s, end]
    bases: Additive  # of [s, a, end], in closed form; that of the free one is a constant


class Found(NamedTuple):
    """What a look brings."""

    edges: Edges
    looked: Looked
    bases: Additive


class State(NamedTuple):
    rewards: Rewards
    optimiser: Optimiser
    edges: Edges  # those that the data support, as masks; all, until there is enough data
    looked: Looked
    judge: Judge


def make(config: Config) -> Method:
    # Where one of the two numbers is given, it holds for segments of any length.
    steps = STEPS if config.segments is None and config.update_every is None else 0
    sampling = Sampling(config.segments or 4, "uniform", config.update_every or 10, steps)

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        states, actions = spec.observation_size, spec.action_size
        sizes = (2 * states + actions + 1, *config.hidden, 1)
        networks = jax.vmap(lambda k: MLP.init(k, sizes))(jax.random.split(key))
        nothing = additive.zero(states + actions + 1)
        return State(
            rewards=Rewards(networks, _pair(nothing, nothing)),
            optimiser=optimise.start(networks, config.learning_rate or RATE),
            edges=all_edges(states, actions, 1.0),
            looked=nothing_looked_at(spec),
            judge=judges.start(),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments, bases = batch.segments, state.rewards.bases
        assert segments is not None
        held_out, importance = judges.is_held_out(segments.number), segments.length.astype(jnp.float32)
        learned_from = jnp.where(held_out, 0.0, importance)
        judged_by = jnp.where(held_out, importance**2, 0.0)  # errors of totals count alike
        masks = input_masks(state.edges)

        def loss(networks: MLP) -> tuple[Float[Array, ""], Float[Array, "2 M"]]:
            errors = segment_errors(Rewards(networks, bases), masks, segments)
            # In units of each one's own error, so that neither learns faster for being worse.
            return jnp.sum(_mean_square(errors, learned_from) / bases.error**2), errors

        networks, optimiser, errors = optimise.descend_with(state.optimiser, state.rewards.networks, loss)
        judge = judges.watch(state.judge, errors, judged_by)
        state = state._replace(rewards=Rewards(networks, bases), optimiser=optimiser, judge=judge)
        return state, _metrics(state, _mean_square(errors, learned_from))

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        x = inputs(
            transitions.observation, transitions.action, transitions.next_observation, transitions.terminated
        )
        both = predict(state.rewards, input_masks(state.edges), x)
        share = judges.share(state.judge)
        return share * both[RESTRICTED] + (1 - share) * both[FREE]

    def policy_mask(state: State) -> Float[Array, "S"]:
        return jnp.maximum(compact(state.edges, state.looked.ends, config), 1 - state.judge.trusted)

    return Method(
        init,
        update,
        reward,
        sampling,
        policy_mask,
        graph=GraphView(known_edges, reads, lambda state: state.looked.doubts),
        revision=_revision(config),
        rescale=rescale,
    )


def known_edges(state: State) -> Edges:
    """What is known of each edge; one that stays on though nothing speaks for it is at 0.5."""

    def shown(on: Float[Array, "..."], known: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.where(known == 0.5, 0.5 * on, known)

    return jax.tree.map(shown, state.edges, state.looked.known)


def reads(state: State) -> Float[Array, "D"]:
    """States and actions that the policy's reward depends on."""
    return jnp.maximum(reward_mask(state.edges), 1 - state.judge.trusted)


# --- The two rewards


def inputs(
    observation: Float[Array, "*B S"],
    action: Float[Array, "*B A"],
    next_observation: Float[Array, "*B S"],
    terminated: Bool[Array, "*B"],
) -> Float[Array, "*B I"]:
    """[s, a, s' - s, end] of each step."""
    end = jnp.expand_dims(terminated.astype(observation.dtype), -1)
    return jnp.concatenate([observation, action, next_observation - observation, end], axis=-1)


def predict(rewards: Rewards, masks: Float[Array, "2 I"], x: Float[Array, "*B I"]) -> Float[Array, "2 *B"]:
    """r̂ of both: what its base says, and what its network adds to that, in units of the base's error."""
    dims = rewards.bases.mean.shape[-1] - 1
    plain = jnp.concatenate([x[..., :dims], x[..., -1:]], axis=-1)

    def one(network: MLP, base: Additive, mask: Float[Array, "I"]) -> Float[Array, "*B"]:
        rest = network.scalar(x * jnp.broadcast_to(mask, x.shape))
        return additive.predict(base, plain) + base.error * rest

    return jax.vmap(one)(rewards.networks, rewards.bases, masks)


def segment_errors(rewards: Rewards, masks: Float[Array, "2 I"], segments: Segments) -> Float[Array, "2 M"]:
    """(Σ_t r̂_t - total) / T of each segment, by both rewards."""
    last = jnp.arange(segments.mask.shape[1])[None, :] == segments.length[:, None] - 1
    ends = last & segments.terminated[:, None]
    x = inputs(segments.observations[:, :-1], segments.actions, segments.observations[:, 1:], ends)
    found = predict(rewards, masks, x)
    return jax.vmap(lambda rewards: losses.segment_errors(rewards, segments))(found)


def _mean_square(errors: Float[Array, "2 M"], importance: Float[Array, "M"]) -> Float[Array, "2"]:
    """Segments count by their length: so does the variance of what they pay."""
    return jnp.sum(errors**2 * importance[None, :], axis=1) / jnp.maximum(jnp.sum(importance), 1.0)


def input_masks(edges: Edges) -> Float[Array, "2 I"]:
    """The restricted reward reads states and actions with an edge and whether a step is an end, but nothing
    of where it led: a fine at an end must not fall to what happens to be so at ends."""
    restricted = jnp.concatenate([reward_mask(edges), jnp.zeros(len(edges.state_to_reward)), jnp.ones(1)])
    return jnp.stack([restricted, jnp.ones_like(restricted)])


def _metrics(state: State, squares: Float[Array, "2"]) -> Metrics:
    held_out = judges.root_errors(state.judge)
    return {
        "reward_loss": squares[RESTRICTED],
        "free_reward_loss": squares[FREE],
        "held_out_error": held_out[RESTRICTED],
        "free_held_out_error": held_out[FREE],
        "restricted_share": judges.share(state.judge),
        **shares_on(state.edges),
    }


# --- Looks


def _revision(config: Config) -> Revision:
    """Often for the additive reward, which is cheap to fit; each time segments have doubled for the edges."""
    return Revision(
        look=partial(look, config=config),
        accept=accept,
        findings=lambda state: Found(state.edges, state.looked, state.rewards.bases),
        first=ENOUGH_SEGMENTS / 8,
        growth=2 ** (1 / 3),
        max_rows=400_000,
    )


def look(state: State, records: list[Record], segments: int, config: Config) -> Found:
    """Find the edges anew where there is enough new evidence, and then the additive reward within them."""
    edges, looked = state.edges, state.looked
    on = np.asarray(reward_mask(edges))
    learned = ~judges.is_held_out(np.array([each.number for each in records]))
    found = looking.apart_if_large(
        looking.look, seen_in(records), on, learned, search_due(looked, segments), config.base
    )
    if found.searched is not None:
        edges, looked = after(edges, looked, found.searched, segments)
    return Found(edges, looked, _pair(Additive.of(found.fitted), Additive.of(found.constant)))


def accept(state: State, found: Found) -> State:
    rewards = rebased(state.rewards, found.bases, learned=state.judge.known > 0)
    return state._replace(rewards=rewards, edges=found.edges, looked=found.looked)


def rebased(rewards: Rewards, bases: Additive, learned: Bool[Array, ""]) -> Rewards:
    """On other bases: what the networks add stays as it was, in the rewards' own unit. The free reward stays
    as it was as a whole: the constant that its base gains, its network loses. Before anything was learned
    nothing is to stay: networks start at size one in the unit that the first bases bring, whatever it is."""

    def one(network: MLP, old: Additive, new: Additive, makes_up: Float[Array, ""]) -> MLP:
        ratio = jnp.where(learned, old.error / new.error, 1.0)
        moved = jnp.where(learned, makes_up * (old.offset - new.offset) / new.error, 0.0)
        return network.moved(ratio, moved)

    return Rewards(jax.vmap(one)(rewards.networks, rewards.bases, bases, jnp.asarray([0.0, 1.0])), bases)


def rescale(state: State, factor: Float[Array, ""], shift: Float[Array, ""]) -> State:
    """Both rewards, and their errors. Before the first bases nothing is known of sizes, and networks stay at
    size one; the shift, what all steps earn, bases find."""
    bases = state.rewards.bases
    times = jnp.where(bases.error == 1, 1.0, factor)  # as additive.zero has it
    bases = bases._replace(
        weights=bases.weights * times[:, None, None], offset=bases.offset * times, error=bases.error * times
    )
    judge = state.judge._replace(squares=state.judge.squares * factor**2)
    return state._replace(rewards=state.rewards._replace(bases=bases), judge=judge)


def _pair(restricted: Additive, free: Additive) -> Additive:
    return jax.tree.map(lambda *both: jnp.stack(both), restricted, free)
