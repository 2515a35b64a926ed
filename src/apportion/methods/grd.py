"""GRD, Generative Return Decomposition (Zhang et al., NeurIPS 2023): the paper's equations 2 and 4 to 7.

As published: a reward network and a dynamics network, each seeing only the inputs that sampled edges let
through; the edges are learned with them. In closed form: edges come from regression on all episodes so far
(apportion.graph), and so does most of the reward (apportion.graph.additive); a network learns the rest of it.
Policies see the dimensions with a path to the reward, or to the end of an episode.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import BLOCKS, Spec
from apportion.core.types import (
    Batch,
    Edges,
    Method,
    Metrics,
    Record,
    Revision,
    Sampling,
    Segments,
    Transitions,
)
from apportion.graph import ENOUGH_SEGMENTS, additive, ending_dimensions, identify
from apportion.graph.additive import Additive
from apportion.nn import losses, masks, optimise
from apportion.nn.networks import MLP, MixtureDynamics
from apportion.nn.optimise import Optimiser

MAX_ROWS = 400_000  # steps that one search for edges looks at
CERTAIN = 0.8  # how confident a search must be to take an edge away


@dataclass(frozen=True)
class Config:
    """GRD: reward and dynamics networks behind learned causal edges."""

    sparsity: tuple[float, float, float, float, float] = (1e-5, 1e-5, 1e-5, 1e-6, 1e-5)
    """λ1..λ5: weights of log P for the edges s→r, a→r, s→s between dimensions, s→s to itself, a→s."""
    structure: Literal["closed-form", "hybrid", "gradient"] = "closed-form"
    """How edges are found: by regression on all episodes so far, by gradient from where regression sets them,
    or by gradient alone, as published."""
    base: bool = True
    """Fit an additive reward in closed form, and let the network learn what it leaves."""
    compact: Literal["closure", "one-hop", "parents", "none"] = "closure"
    """What the policy sees: all ancestors of the reward, its parents and theirs, its parents only, or every
    dimension (the paper's ablation "w/o CR"). An episode's end counts as the reward does."""
    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per reward update: M."""
    update_every: int = 10
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward and dynamics networks."""
    learning_rate: float = 3e-4
    """Adam's step for the two networks."""
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
        check(self.learning_rate > 0, f"method.learning_rate={self.learning_rate} must be positive")
        check(
            self.edge_learning_rate >= 0, f"method.edge_learning_rate={self.edge_learning_rate} is negative"
        )
        check(self.segments >= 1, f"method.segments={self.segments} must be at least 1")
        check(self.update_every >= 1, f"method.update_every={self.update_every} must be at least 1")
        check(len(self.hidden) >= 1, "method.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"method.hidden={self.hidden} must be at least 1 each")
        check(self.temperature > 0, f"method.temperature={self.temperature} must be positive")
        check(self.components >= 1, f"method.components={self.components} must be at least 1")
        check(self.log_std_range[0] < self.log_std_range[1], "method.log_std_range must rise")


class Model(NamedTuple):
    """Φ_m: the edges φ_cau (as logits), the reward φ_rew and the dynamics φ_dyn."""

    edges: Edges
    reward: MLP
    dynamics: MixtureDynamics


class State(NamedTuple):
    model: Model
    reward_optimiser: Optimiser
    dynamics_optimiser: Optimiser
    edge_optimiser: Optimiser
    sparsity: Float[Array, "5"]  # λ1..λ5, in the state so that lanes may differ
    found: Edges  # structure "closed-form": the edges that the data support; all, until there is enough data
    base: Additive  # the part of the reward that is fitted in closed form
    ends: Float[Array, "S"]  # 1 where a dimension tells that an episode ends; found with the edges
    looked: Int[Array, ""]  # how many segments there were at the last search for edges


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        model = _init_model(config, key, spec.observation_size, spec.action_size)
        return State(
            model=model,
            reward_optimiser=optimise.start(model.reward, config.learning_rate),
            dynamics_optimiser=optimise.start(model.dynamics, config.learning_rate),
            edge_optimiser=optimise.start(model.edges, config.edge_learning_rate),
            sparsity=jnp.asarray(config.sparsity, jnp.float32),
            found=jax.tree.map(jnp.ones_like, model.edges),
            base=additive.zero(spec.observation_size + spec.action_size),
            ends=jnp.zeros(spec.observation_size, jnp.float32),
            looked=jnp.zeros((), jnp.int32),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        if config.structure == "closed-form":
            return _fit_reward(state, batch)
        loss = jax.grad(model_loss, has_aux=True)
        gradients, metrics = loss(state.model, state.base, batch, state.sparsity, key, config)
        model = state.model
        reward, reward_optimiser = optimise.step(state.reward_optimiser, model.reward, gradients.reward)
        dynamics, dynamics_optimiser = optimise.step(
            state.dynamics_optimiser, model.dynamics, gradients.dynamics
        )
        edges, edge_optimiser = optimise.step(state.edge_optimiser, model.edges, gradients.edges)
        state = state._replace(
            model=Model(edges, reward, dynamics),
            reward_optimiser=reward_optimiser,
            dynamics_optimiser=dynamics_optimiser,
            edge_optimiser=edge_optimiser,
        )
        return state, metrics

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        x = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
        rest = predict_rest(state.model.reward, edges_on(state, config), x)
        return additive.predict(state.base, x) + state.base.error * rest

    def policy_mask(state: State) -> Float[Array, "S"]:
        on = edges_on(state, config)
        if config.compact == "none":
            return jnp.ones_like(on.state_to_reward)
        matters = jnp.maximum(on.state_to_reward, state.ends)
        if config.compact == "parents":
            return matters
        widen = masks.closure if config.compact == "closure" else masks.one_hop
        return widen(matters, on.state_to_state)

    def edges(state: State) -> Edges:
        if config.structure == "closed-form":
            return state.found
        return jax.tree.map(masks.edge_probability, state.model.edges)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    return Method(init, update, reward, policy_mask, edges, sampling, _revision(config))


def edges_on(state: State, config: Config) -> Edges:
    """Edges that are on, as masks."""
    if config.structure == "closed-form":
        return state.found
    return jax.tree.map(masks.greedy_mask, state.model.edges)


# --- Closed form: looks at all segments so far


def _revision(config: Config) -> Revision | None:
    """Often for the additive reward, which is cheap to fit; each time segments have doubled for the edges."""
    look = partial(look_again, config=config)
    if config.base:
        return Revision(look, ENOUGH_SEGMENTS / 8, 2 ** (1 / 3), MAX_ROWS)
    return None if config.structure == "gradient" else Revision(look, ENOUGH_SEGMENTS, 2.0, MAX_ROWS)


def look_again(state: State, records: list[Record], segments: int, config: Config) -> State:
    """Find the edges anew where there is enough new evidence, and then the additive reward within them."""
    enough = segments >= max(ENOUGH_SEGMENTS, 2 * int(state.looked))
    if config.structure != "gradient" and enough:
        state = find_edges(state, records, config)._replace(looked=jnp.asarray(segments, jnp.int32))
    if config.base:
        on = edges_on(state, config)
        allowed = np.concatenate([on.state_to_reward, on.action_to_reward]) > 0
        rows = [np.concatenate([r.observations[:-1], r.actions], axis=1) for r in records]
        state = state._replace(base=additive.fit(rows, np.array([r.total for r in records]), allowed))
    return state


def find_edges(state: State, records: list[Record], config: Config) -> State:
    """Keep the edges that the data support; all of them where the data cannot tell."""
    observations = [record.observations for record in records]
    totals = np.array([record.total for record in records])
    result = identify(observations, [record.actions for record in records], totals)
    ends = ending_dimensions(observations, np.array([record.terminated for record in records]))
    state = state._replace(ends=jnp.asarray(ends, jnp.float32))
    before = edges_on(state, config)
    if result.certificate.reward:
        parts = (before, result.graph, result.confidence)
        edges = Edges(*(keep(*(getattr(part, name) for part in parts)) for name in BLOCKS))
    else:
        edges = jax.tree.map(jnp.ones_like, before)
    if config.structure == "closed-form":
        return state._replace(found=edges)
    # Hybrid: gradients go on from here, and must overcome the evidence to change an edge.
    logits = jax.tree.map(lambda on: config.initial_edge_logit * (2 * on - 1), edges)
    return state._replace(
        model=state.model._replace(edges=logits),
        edge_optimiser=optimise.start(logits, config.edge_learning_rate),
    )


def keep(before: Array, found: NDArray[Any], confidence: NDArray[Any]) -> Float[Array, "..."]:
    """Edges: on where found, off where their absence is certain, else as before; so that the policy's input
    does not flicker from look to look."""
    return jnp.asarray(np.where(found, 1.0, np.where(confidence >= CERTAIN, 0.0, before)), jnp.float32)


def _fit_reward(state: State, batch: Batch) -> tuple[State, Metrics]:
    """One step of the reward network alone, within the edges found: regression needs no dynamics network."""
    segments = batch.segments
    assert segments is not None

    def loss(network: MLP) -> Float[Array, ""]:
        return rest_loss(network, state.found, state.base, segments)

    reward, optimiser, reward_loss = optimise.descend(state.reward_optimiser, state.model.reward, loss)
    state = state._replace(model=state.model._replace(reward=reward), reward_optimiser=optimiser)
    return state, {"reward_loss": state.base.error**2 * reward_loss, **_shares_on(state.found)}


# --- Losses


def model_loss(
    model: Model,
    base: Additive,
    batch: Batch,
    sparsity: Float[Array, "5"],
    key: PRNGKeyArray,
    config: Config,
) -> tuple[Float[Array, ""], Metrics]:
    """L_m = L_rew + L_dyn + L_reg, with independent edge samples for the reward and the dynamics batch."""
    assert batch.segments is not None
    reward_key, dynamics_key = jax.random.split(key)
    reward_loss = _reward_loss(model, base, batch.segments, reward_key, config)
    dynamics_loss = _dynamics_loss(model, batch.transitions, dynamics_key, config)
    sparsity_loss = losses.sparsity_loss(model.edges, sparsity)
    metrics = {
        "reward_loss": base.error**2 * reward_loss,
        "dynamics_loss": dynamics_loss,
        "sparsity_loss": sparsity_loss,
        **_shares_on(jax.tree.map(masks.greedy_mask, model.edges)),
    }
    return reward_loss + dynamics_loss + sparsity_loss, metrics


def predict_rest(network: MLP, edges: Edges, x: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """MLP([C^{s→r} ⊙ s, C^{a→r} ⊙ a]): r̂, or what the additive reward leaves, in units of its error."""
    mask = jnp.concatenate([edges.state_to_reward, edges.action_to_reward])
    return jnp.squeeze(network(x * jnp.broadcast_to(mask, x.shape)), axis=-1)


def rest_loss(network: MLP, edges: Edges, base: Additive, segments: Segments) -> Float[Array, ""]:
    """Equation 4 on what the additive reward leaves of each total, in units of its error."""
    x = jnp.concatenate([segments.observations[:, :-1], segments.actions], axis=-1)
    explained = jnp.sum(jnp.where(segments.mask, additive.predict(base, x), 0.0), axis=1)
    rest = (segments.total - explained) / base.error
    return losses.return_loss(predict_rest(network, edges, x), segments.mask, rest, segments.length)


def _shares_on(edges: Edges) -> Metrics:
    """The share of edges that are on, by block."""
    return {f"{block}_on": jnp.mean(mask) for block, mask in edges._asdict().items()}


def _reward_loss(
    model: Model, base: Additive, segments: Segments, key: PRNGKeyArray, config: Config
) -> Float[Array, ""]:
    logits = (model.edges.state_to_reward, model.edges.action_to_reward)
    state_to_reward, action_to_reward = sample_masks(key, logits, config.temperature)
    sampled = model.edges._replace(state_to_reward=state_to_reward, action_to_reward=action_to_reward)
    return rest_loss(model.reward, sampled, base, segments)


def _dynamics_loss(
    model: Model, transitions: Transitions, key: PRNGKeyArray, config: Config
) -> Float[Array, ""]:
    logits = (model.edges.state_to_state, model.edges.action_to_state)
    state_to_state, action_to_state = sample_masks(key, logits, config.temperature)
    means, log_stds, mixture_logits = model.dynamics(
        transitions.observation,
        transitions.action,
        state_to_state,
        action_to_state,
        use_identity=config.target_identity,
    )
    log_stds = jnp.clip(log_stds, *config.log_std_range)
    return losses.mixture_nll(transitions.next_observation, means, log_stds, mixture_logits)


def sample_masks(key: PRNGKeyArray, logits: tuple[Array, Array], temperature: float) -> tuple[Array, Array]:
    """Both blocks of edges in one draw: random numbers are what takes longest to compile."""
    flat, blocks = ravel_pytree(logits)
    return blocks(masks.sample_mask(key, flat, temperature))


def _init_model(config: Config, key: PRNGKeyArray, states: int, actions: int) -> Model:
    reward_key, dynamics_key = jax.random.split(key)
    logit = config.initial_edge_logit
    return Model(
        edges=Edges(
            state_to_reward=jnp.full((states,), logit, jnp.float32),
            action_to_reward=jnp.full((actions,), logit, jnp.float32),
            state_to_state=jnp.full((states, states), logit, jnp.float32),
            action_to_state=jnp.full((actions, states), logit, jnp.float32),
        ),
        reward=MLP.init(reward_key, (states + actions, *config.hidden, 1)),
        dynamics=MixtureDynamics.init(dynamics_key, states, actions, config.hidden, config.components),
    )
