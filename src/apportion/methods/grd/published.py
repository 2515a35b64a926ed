"""GRD as published: a reward network and a dynamics network, each seeing only the inputs that sampled edges
let through; the edges are learned with them (equations 4 to 6 of the paper).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Batch, Edges, GraphView, Method, Metrics, Sampling, Transitions
from apportion.methods.grd import parts
from apportion.methods.grd.parts import Config, all_edges, compact, reward_mask, shares_on
from apportion.nn import losses, optimise
from apportion.nn.networks import MLP, MixtureDynamics
from apportion.nn.optimise import Optimiser


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
    sparsity: Float[Array, "5"]  # λ1..λ5


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        reward_key, dynamics_key = jax.random.split(key)
        states, actions, hidden = spec.observation_size, spec.action_size, config.hidden
        model = Model(
            edges=all_edges(states, actions, config.initial_edge_logit),
            reward=MLP.init(reward_key, (states + actions, *hidden, 1)),
            dynamics=MixtureDynamics.init(dynamics_key, states, actions, hidden, config.components),
        )
        rate = config.learning_rate or 3e-4
        return State(
            model=model,
            reward_optimiser=optimise.start(model.reward, rate),
            dynamics_optimiser=optimise.start(model.dynamics, rate),
            edge_optimiser=optimise.start(model.edges, config.edge_learning_rate),
            sparsity=jnp.asarray(config.sparsity, jnp.float32),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        loss = jax.grad(model_loss, has_aux=True)
        gradients, metrics = loss(state.model, batch, state.sparsity, key, config)
        model = state.model
        reward, reward_optimiser = optimise.step(state.reward_optimiser, model.reward, gradients.reward)
        transition, dynamics_optimiser = optimise.step(
            state.dynamics_optimiser, model.dynamics, gradients.dynamics
        )
        edges, edge_optimiser = optimise.step(state.edge_optimiser, model.edges, gradients.edges)
        state = state._replace(
            model=Model(edges, reward, transition),
            reward_optimiser=reward_optimiser,
            dynamics_optimiser=dynamics_optimiser,
            edge_optimiser=edge_optimiser,
        )
        return state, metrics

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        x = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
        return predict_reward(state.model.reward, reward_mask(edges_on(state)), x)

    def policy_mask(state: State) -> Float[Array, "S"]:
        on = edges_on(state)
        return compact(on, jnp.zeros_like(on.state_to_reward), config)

    def edges(state: State) -> Edges:
        return jax.tree.map(jax.nn.sigmoid, state.model.edges)  # exp(ψ0) / (exp(ψ0) + exp(ψ1))

    def reads(state: State) -> Float[Array, "D"]:
        return reward_mask(edges_on(state))

    sampling = Sampling(config.segments or 4, "uniform", config.update_every or 1)
    return Method(
        init,
        update,
        reward,
        sampling,
        policy_mask,
        graph=GraphView(edges, reads),
        rescale=rescale,
    )


def rescale(state: State, factor: Float[Array, ""], shift: Float[Array, ""]) -> State:
    return state._replace(model=state.model._replace(reward=state.model.reward.moved(factor, shift)))


def edges_on(state: State) -> Edges:
    """Edges that are on, as masks."""
    return jax.tree.map(parts.greedy_mask, state.model.edges)


# --- Losses


def model_loss(
    model: Model,
    batch: Batch,
    sparsity: Float[Array, "5"],
    key: PRNGKeyArray,
    config: Config,
) -> tuple[Float[Array, ""], Metrics]:
    """L_m = L_rew + L_dyn + L_reg, with independent edge samples for the reward and the dynamics batch."""
    assert batch.segments is not None
    reward_key, dynamics_key = jax.random.split(key)
    on, segments, steps = model.edges, batch.segments, batch.transitions
    to_reward = sample_masks(reward_key, (on.state_to_reward, on.action_to_reward), config.temperature)
    mask = jnp.concatenate(to_reward)
    x = jnp.concatenate([segments.observations[:, :-1], segments.actions], axis=-1)
    rewards = predict_reward(model.reward, mask, x)
    reward_loss = losses.return_loss(rewards, segments)
    to_state = sample_masks(dynamics_key, (on.state_to_state, on.action_to_state), config.temperature)
    means, log_stds, weights = model.dynamics(
        steps.observation, steps.action, *to_state, use_identity=config.target_identity
    )
    log_stds = jnp.clip(log_stds, *config.log_std_range)
    dynamics_loss = losses.mixture_nll(steps.next_observation, means, log_stds, weights)
    sparsity_loss = losses.sparsity_loss(model.edges, sparsity)
    metrics = {
        "reward_loss": reward_loss,
        "dynamics_loss": dynamics_loss,
        "sparsity_loss": sparsity_loss,
        **shares_on(jax.tree.map(parts.greedy_mask, model.edges)),
    }
    return reward_loss + dynamics_loss + sparsity_loss, metrics


def predict_reward(network: MLP, mask: Float[Array, "D"], x: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """r̂ = MLP([C^{s→r} ⊙ s, C^{a→r} ⊙ a])."""
    return network.scalar(x * jnp.broadcast_to(mask, x.shape))


def sample_masks(key: PRNGKeyArray, logits: tuple[Array, Array], temperature: float) -> tuple[Array, Array]:
    """Both blocks of edges in one draw: random numbers are what takes longest to compile."""
    flat, blocks = ravel_pytree(logits)
    return blocks(parts.sample_mask(key, flat, temperature))
