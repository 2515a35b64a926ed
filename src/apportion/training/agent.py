"""Method x backbone → one agent: what is learned about the reward teaches the policy (paper, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Backbone, Batch, Method, Metrics, State, Transitions


class AgentState(NamedTuple):
    method: State
    backbone: State


class Lesson(NamedTuple):
    """What one update of the policy learns from."""

    transitions: Transitions  # with the dimensions only that the policy may see
    rewards: Float[Array, "B"]  # as the model has them
    key: PRNGKeyArray


def init(method: Method, backbone: Backbone, key: PRNGKeyArray, spec: Spec) -> AgentState:
    method_key, backbone_key = random.split(key)
    return AgentState(method.init(method_key, spec), backbone.init(backbone_key, spec))


def update_model(
    method: Method, state: AgentState, batch: Batch, key: PRNGKeyArray
) -> tuple[AgentState, Metrics]:
    """Optimise the generative model with segments D1 and transitions D2."""
    model, metrics = method.update(state.method, batch, key)
    share_seen = jnp.mean(method.policy_mask(model))
    return state._replace(method=model), metrics | {"policy_mask_on": share_seen}


def lesson(method: Method, model: State, transitions: Transitions, key: PRNGKeyArray) -> Lesson:
    """Steps with the model's rewards, and what it remembers besides, as the policy may see them."""
    if method.recall is not None:
        key, recall_key = random.split(key)
        remembered = method.recall(model, len(transitions.paid), recall_key)
        transitions = jax.tree.map(lambda *x: jnp.concatenate(x), transitions, remembered)
    seen = _mask_observations(transitions, method.policy_mask(model))
    return Lesson(seen, method.reward(model, transitions), key)


def update_policy(backbone: Backbone, state: AgentState, lesson: Lesson) -> tuple[AgentState, Metrics]:
    """Optimise the policy."""
    policy, metrics = backbone.update(state.backbone, *lesson)
    return state._replace(backbone=policy), metrics


def actor(method: Method, backbone: Backbone, state: AgentState) -> dict[str, Array]:
    """Plain arrays with which a worker acts, the policy mask among them: the same mask as in learning."""
    return {"mask": method.policy_mask(state.method), **backbone.actor(state.backbone)}


def _mask_observations(transitions: Transitions, mask: Float[Array, "S"]) -> Transitions:
    mask = jnp.broadcast_to(mask, transitions.observation.shape)
    return transitions._replace(
        observation=transitions.observation * mask,
        next_observation=transitions.next_observation * mask,
    )
