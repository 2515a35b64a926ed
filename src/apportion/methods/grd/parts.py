"""What both forms of GRD stand on: a reward network behind edges, the policy's view, looks at the data."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import at_least, check, positive
from apportion.core.spec import Spec, block_shapes
from apportion.core.types import Edges, Metrics, Record
from apportion.graph import ENOUGH_SEGMENTS, Endings
from apportion.graph.certificate import Doubt, marks
from apportion.graph.looking import Searched, Seen
from apportion.nn.networks import check_layers


@dataclass(frozen=True)
class Config:
    """GRD: reward and dynamics networks behind learned causal edges."""

    sparsity: tuple[float, float, float, float, float] = (1e-5, 1e-5, 1e-5, 1e-6, 1e-5)
    """λ1..λ5: weights of log P for the edges s→r, a→r, s→s between dimensions, s→s to itself, a→s."""
    structure: Literal["closed-form", "gradient"] = "closed-form"
    """How edges are found: by regression on all episodes so far, or by gradient, as published."""
    base: bool = True
    """In closed form only: fit an additive reward, and let the network behind the edges learn the rest."""
    compact: Literal["closure", "one-hop", "parents", "none"] = "closure"
    """What the policy sees: all ancestors of the reward, its parents and theirs, its parents only, or every
    dimension (the paper's ablation "w/o CR"). An episode's end counts as the reward does."""
    segments: int | None = None
    """Segments (whole episodes when the reward comes at the end) per reward update: M. When not given, so
    many as have 4,000 steps together, from 4 to 8; 4 with edges by gradient."""
    update_every: int | None = None
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's. When
    not given, 10 for segments of 4,000 steps and fewer in proportion; 1 with edges by gradient."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward and dynamics networks."""
    learning_rate: float | None = None
    """Adam's step for the networks. When not given, 1e-3; 3e-4 with edges by gradient."""
    edge_learning_rate: float = 3e-4
    """Adam's step for the edge logits."""
    initial_edge_logit: float = 5.0
    """Where edge logits start; positive: every edge is on until the data speak against it."""
    temperature: float = 1.0
    """Temperature of the straight-through Gumbel-softmax."""
    components: int = 3
    """Gaussians in the mixture that predicts each next-state dimension."""
    log_std_range: tuple[float, float] = (-5.0, 2.0)
    """Where the mixture's log standard deviations are clamped."""
    target_identity: bool = True
    """Tell the shared dynamics network which dimension it predicts; False is the published form."""

    def __post_init__(self) -> None:
        check(
            len(self.sparsity) == 5 and min(self.sparsity) >= 0,
            f"method.sparsity={self.sparsity} must be five numbers, none negative",
        )
        at_least(self, "method.", edge_learning_rate=0, segments=1, update_every=1, components=1)
        positive(self, "method.", "learning_rate", "temperature")
        check_layers("method.hidden", self.hidden)
        check(self.log_std_range[0] < self.log_std_range[1], "method.log_std_range must rise")


# --- Edges as masks


def sample_mask(
    key: PRNGKeyArray, logits: Float[Array, "*E"], temperature: float = 1.0
) -> Float[Array, "*E"]:
    """A hard 0/1 sample of each edge whose gradient is the soft sample's (straight-through Gumbel-softmax).

    The difference of two Gumbel noises is logistic: soft = sigmoid((logit + noise) / temperature).
    """
    noise = jax.random.logistic(key, logits.shape, logits.dtype)
    soft = jax.nn.sigmoid((logits + noise) / temperature)
    hard = (soft >= 0.5).astype(logits.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))


def greedy_mask(logits: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """1 where ψ0 >= ψ1, else 0."""
    return (logits >= 0).astype(logits.dtype)


def one_hop(state_to_reward: Float[Array, "S"], state_to_state: Float[Array, "S S"]) -> Float[Array, "S"]:
    """The dimensions in `state_to_reward`, and those with an edge to one of them (equation 7)."""
    return jnp.maximum(state_to_reward, (state_to_state @ state_to_reward > 0).astype(state_to_reward.dtype))


def closure(state_to_reward: Float[Array, "S"], state_to_state: Float[Array, "S S"]) -> Float[Array, "S"]:
    """Every dimension with a path to the reward: one hop, repeated until nothing is added."""

    def grows(masks: tuple[Array, Array]) -> Array:
        before, after = masks
        return jnp.any(before != after)

    def hop(masks: tuple[Array, Array]) -> tuple[Array, Array]:
        _, mask = masks
        return mask, one_hop(mask, state_to_state)

    _, mask = jax.lax.while_loop(grows, hop, (state_to_reward, one_hop(state_to_reward, state_to_state)))
    return mask


def all_edges(states: int, actions: int, value: float) -> Edges:
    """The same number (a mask, or a logit) for every edge."""
    return Edges(*(jnp.full(shape, value, jnp.float32) for shape in block_shapes(states, actions).values()))


# --- The reward


def reward_mask(edges: Edges) -> Float[Array, "D"]:
    """[C^{s→r}, C^{a→r}]: what a reward network may see of states and actions."""
    return jnp.concatenate([edges.state_to_reward, edges.action_to_reward])


def shares_on(edges: Edges) -> Metrics:
    """The share of edges that are on, by block."""
    return {f"{block}_on": jnp.mean(mask) for block, mask in edges._asdict().items()}


# --- The policy


def compact(on: Edges, ends: Float[Array, "S"], config: Config) -> Float[Array, "S"]:
    """What the policy sees: dimensions that matter to the reward or to an episode's end, by equation 7."""
    if config.compact == "none":
        return jnp.ones_like(on.state_to_reward)
    matters = jnp.maximum(on.state_to_reward, ends)
    if config.compact == "parents":
        return matters
    widen = closure if config.compact == "closure" else one_hop
    return widen(matters, on.state_to_state)


# --- Looks at all segments so far


class Looked(NamedTuple):
    """What searches have brought, beside the edges that are on."""

    known: Edges  # 1 where an edge is present, 0 where it is absent, 0.5 where the data cannot tell
    ends: Float[Array, "S"]  # 1 where a dimension tells that an episode ends
    ends_seen: Int[Array, ""]  # in how many episodes that was looked for
    searched: Int[Array, ""]  # how many segments there were at the last search
    doubts: Float[Array, "N"]  # 1 for each doubt that speaks against the edges, in the order of Doubt


def nothing_looked_at(spec: Spec) -> Looked:
    return Looked(
        known=all_edges(spec.observation_size, spec.action_size, 0.5),
        ends=jnp.zeros(spec.observation_size, jnp.float32),
        ends_seen=jnp.zeros((), jnp.int32),
        searched=jnp.zeros((), jnp.int32),
        doubts=jnp.asarray(marks([Doubt.NOT_SEARCHED]), jnp.float32),
    )


def search_due(looked: Looked, segments: int) -> bool:
    """Edges are searched for when there are enough segments, and then each time these have doubled."""
    return segments >= max(ENOUGH_SEGMENTS, 2 * int(looked.searched))


def seen_in(records: list[Record]) -> Seen:
    """What a look sees of segments."""
    return Seen(
        [record.observations for record in records],
        [record.actions for record in records],
        np.array([record.total for record in records]),
        np.array([record.terminated for record in records]),
    )


def after(before: Edges, looked: Looked, found: Searched, segments: int) -> tuple[Edges, Looked]:
    """The edges that are on, and what is known: an edge goes only when its absence is known."""
    on = found.edges_after(map(np.asarray, before))
    # Falls leave the replay when a policy has learned not to fall; what they told must not leave with them.
    ends = Endings(np.asarray(looked.ends) > 0, int(looked.ends_seen)).remember(found.endings)
    return Edges(*map(jnp.asarray, on)), Looked(
        known=Edges(*map(jnp.asarray, found.known)),
        ends=jnp.asarray(ends.matters, jnp.float32),
        ends_seen=jnp.asarray(ends.ends, jnp.int32),
        searched=jnp.asarray(segments, jnp.int32),
        doubts=jnp.asarray(marks(found.doubts), jnp.float32),
    )
