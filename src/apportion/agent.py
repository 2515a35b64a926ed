"""Method x backbone → one agent: what is learned about the reward teaches the policy (paper, Algorithm 1)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.spec import Spec
from apportion.types import Backbone, Batch, Method, Metrics, State, Transitions


class AgentState(NamedTuple):
    method: State
    backbone: State


def init(method: Method, backbone: Backbone, key: PRNGKeyArray, spec: Spec) -> AgentState:
    method_key, backbone_key = random.split(key)
    return AgentState(method.init(method_key, spec), backbone.init(backbone_key, spec))


def update(
    method: Method, backbone: Backbone, state: AgentState, batch: Batch, key: PRNGKeyArray
) -> tuple[AgentState, Metrics]:
    """One pass of Algorithm 1's inner loop: first the model, then the policy with the new model's rewards."""
    model_key, policy_key = random.split(key)

    # Optimise the generative model with segments D1 and transitions D2.
    model, model_metrics = method.update(state.method, batch, model_key)

    # Choose edges greedily; D2 keeps the dimensions the policy may see and gets the model's rewards.
    policy_mask = method.policy_mask(model)
    rewards = method.reward(model, batch.transitions)
    seen = _mask_observations(batch.transitions, policy_mask)

    # Optimise the policy.
    policy, policy_metrics = backbone.update(state.backbone, seen, rewards, policy_key)

    metrics = model_metrics | policy_metrics | {"policy_mask_on": jnp.mean(policy_mask)}
    return AgentState(model, policy), metrics


def actor(method: Method, backbone: Backbone, state: AgentState) -> dict[str, Array]:
    """Plain arrays with which a worker acts, the policy mask among them: the same mask as in learning."""
    return {"mask": method.policy_mask(state.method), **backbone.actor(state.backbone)}


def _mask_observations(transitions: Transitions, mask: Float[Array, "S"]) -> Transitions:
    mask = jnp.broadcast_to(mask, transitions.observation.shape)
    return transitions._replace(
        observation=transitions.observation * mask,
        next_observation=transitions.next_observation * mask,
    )
