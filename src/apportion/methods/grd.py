"""GRD, Generative Return Decomposition (Zhang et al., NeurIPS 2023): the paper's equations 2 and 4 to 7.

A reward network and a dynamics network, each seeing only the inputs that sampled edges let through; the
edges are learned with them. Policies see the dimensions with a path to the reward.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from apportion import losses, masks, optimise
from apportion.config import check
from apportion.identify import ENOUGH_SEGMENTS, identify
from apportion.networks import MLP, MixtureDynamics
from apportion.optimise import Optimiser
from apportion.spec import BLOCKS, Spec
from apportion.types import (
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

MAX_ROWS = 400_000  # steps that one search for edges looks at


@dataclass(frozen=True)
class Config:
    """GRD: reward and dynamics networks behind learned causal edges."""

    sparsity: tuple[float, float, float, float, float] = (1e-5, 1e-5, 1e-5, 1e-6, 1e-5)
    """λ1..λ5: weights of log P for the edges s→r, a→r, s→s between dimensions, s→s to itself, a→s."""
    structure: Literal["gradient", "closed-form"] = "gradient"
    """How edges are found: learned with the networks, as published, or by regression on all episodes so far
    (apportion.identify), the reward network learning within them."""
    compact: Literal["closure", "one-hop", "none"] = "closure"
    """What the policy sees: all ancestors of the reward, parents and theirs, or every dimension (w/o CR)."""
    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per reward update: M."""
    update_every: int = 1
    """Updates of the policy for one of the reward model."""
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
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        if config.structure == "closed-form":
            return _fit_reward(state, batch)
        loss = jax.grad(model_loss, has_aux=True)
        gradients, metrics = loss(state.model, batch, state.sparsity, key, config)
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

    def edges_on(state: State) -> Edges:
        if config.structure == "closed-form":
            return state.found
        return jax.tree.map(masks.greedy_mask, state.model.edges)

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        network = state.model.reward
        return predict_reward(network, edges_on(state), transitions.observation, transitions.action)

    def policy_mask(state: State) -> Float[Array, "S"]:
        on = edges_on(state)
        if config.compact == "none":
            return jnp.ones_like(on.state_to_reward)
        widen = masks.closure if config.compact == "closure" else masks.one_hop
        return widen(on.state_to_reward, on.state_to_state)

    def edges(state: State) -> Edges:
        if config.structure == "closed-form":
            return state.found
        return jax.tree.map(masks.edge_probability, state.model.edges)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    revision = Revision(find_edges, ENOUGH_SEGMENTS, MAX_ROWS) if config.structure == "closed-form" else None
    return Method(init, update, reward, policy_mask, edges, sampling, revision)


def find_edges(state: State, records: list[Record]) -> State:
    """Keep just the edges that the data support; all of them where the data cannot tell."""
    result = identify(
        [record.observations for record in records],
        [record.actions for record in records],
        np.array([record.total for record in records]),
    )
    if not result.certificate.reward:
        return state._replace(found=jax.tree.map(jnp.ones_like, state.found))
    blocks = {name: jnp.asarray(getattr(result.graph, name), jnp.float32) for name in BLOCKS}
    return state._replace(found=Edges(**blocks))


def _fit_reward(state: State, batch: Batch) -> tuple[State, Metrics]:
    """One step of the reward network alone, within the edges found: regression needs no dynamics network."""
    segments = batch.segments
    assert segments is not None

    def loss(network: MLP) -> Float[Array, ""]:
        rewards = predict_reward(network, state.found, segments.observations[:, :-1], segments.actions)
        return losses.return_loss(rewards, segments.mask, segments.total, segments.length)

    reward, optimiser, reward_loss = optimise.descend(state.reward_optimiser, state.model.reward, loss)
    state = state._replace(model=state.model._replace(reward=reward), reward_optimiser=optimiser)
    return state, {"reward_loss": reward_loss, **_shares_on(state.found)}


def model_loss(
    model: Model, batch: Batch, sparsity: Float[Array, "5"], key: PRNGKeyArray, config: Config
) -> tuple[Float[Array, ""], Metrics]:
    """L_m = L_rew + L_dyn + L_reg, with independent edge samples for the reward and the dynamics batch."""
    assert batch.segments is not None
    reward_key, dynamics_key = jax.random.split(key)
    reward_loss = _reward_loss(model, batch.segments, reward_key, config)
    dynamics_loss = _dynamics_loss(model, batch.transitions, dynamics_key, config)
    sparsity_loss = losses.sparsity_loss(model.edges, sparsity)
    metrics = {
        "reward_loss": reward_loss,
        "dynamics_loss": dynamics_loss,
        "sparsity_loss": sparsity_loss,
        **_shares_on(jax.tree.map(masks.greedy_mask, model.edges)),
    }
    return reward_loss + dynamics_loss + sparsity_loss, metrics


def predict_reward(
    network: MLP, edges: Edges, observation: Float[Array, "*B S"], action: Float[Array, "*B A"]
) -> Float[Array, "*B"]:
    """r̂ = MLP([C^{s→r} ⊙ s, C^{a→r} ⊙ a])."""
    seen = jnp.concatenate([observation, action], axis=-1)
    mask = jnp.concatenate([edges.state_to_reward, edges.action_to_reward])
    return jnp.squeeze(network(seen * jnp.broadcast_to(mask, seen.shape)), axis=-1)


def _shares_on(edges: Edges) -> Metrics:
    """The share of edges that are on, by block."""
    return {f"{block}_on": jnp.mean(mask) for block, mask in edges._asdict().items()}


def _reward_loss(model: Model, segments: Segments, key: PRNGKeyArray, config: Config) -> Float[Array, ""]:
    logits = (model.edges.state_to_reward, model.edges.action_to_reward)
    state_to_reward, action_to_reward = sample_masks(key, logits, config.temperature)
    sampled = model.edges._replace(state_to_reward=state_to_reward, action_to_reward=action_to_reward)
    rewards = predict_reward(model.reward, sampled, segments.observations[:, :-1], segments.actions)
    return losses.return_loss(rewards, segments.mask, segments.total, segments.length)


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
