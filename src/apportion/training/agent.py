"""Method x backbone → one agent: what is learned about the reward teaches the policy (paper, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import (
    Backbone,
    Batch,
    Edges,
    Findings,
    Method,
    Metrics,
    Segments,
    State,
    Transitions,
)
from apportion.nn import optimise
from apportion.nn.lanes import choose
from apportion.training import scaling as scales
from apportion.training.limits import Limit, over
from apportion.training.scaling import Scaling


class Awaited(NamedTuple):
    """What a look of the method has found, or is still about to find, and when it counts."""

    findings: Findings
    scaling: Scaling | None  # the units in which it looks
    at: Int[Array, ""]  # the iteration after which it counts; -1: nothing is awaited


class Imagination(NamedTuple):
    """The method's model of where steps lead, while it learns for imagined steps."""

    model: State
    updates: Int[Array, ""]  # so many have been made


class AgentState(NamedTuple):
    method: State
    backbone: State
    scaling: Scaling | None  # None: observations and rewards as they come
    awaited: Awaited | None = None  # None for methods that never look
    imagination: Imagination | None = None  # None where nobody imagines


class PolicyBatch(NamedTuple):
    """What one update of the policy learns from."""

    transitions: Transitions  # with the dimensions only that the policy may see
    rewards: Float[Array, "B"]  # as the model has them, brought to a usual size
    key: PRNGKeyArray


def init(
    method: Method,
    backbone: Backbone,
    key: PRNGKeyArray,
    spec: Spec,
    scaling: Scaling | None,
    imagines: bool = False,
) -> AgentState:
    method_key, backbone_key = random.split(key)
    model, awaited, imagination = method.init(method_key, spec), None, None
    if method.revision is not None:
        awaited = Awaited(method.revision.findings(model), scaling, jnp.asarray(-1, jnp.int32))
    if imagines:
        assert method.dynamics is not None
        # A child beside the two above, which stay what they are without it.
        dynamics = method.dynamics.init(random.fold_in(key, 2), spec)
        imagination = Imagination(dynamics, jnp.zeros((), jnp.int32))
    return AgentState(model, backbone.init(backbone_key, spec), scaling, awaited, imagination)


def update_model(
    method: Method, state: AgentState, batch: Batch, key: PRNGKeyArray
) -> tuple[AgentState, Metrics]:
    """Optimise the generative model with segments D1 and transitions D2, both in the learners' units."""
    model, metrics = method.update(state.method, batch, key)
    state = state._replace(method=model)
    states = batch.transitions.observation.shape[-1]
    return state, metrics | {"policy_mask_on": jnp.mean(seen(method, state, states))}


def in_units(
    method: Method, state: AgentState, scaling: Scaling, more: Float[Array, ""] | None = None
) -> AgentState:
    """With other units. Where that of pay has moved, rewards stay what they are to the environment, as far as
    a method can see to that, and optimisers forget slopes that were of another size. Segments that a method
    remembers follow their units, as those that it draws from the replay do. Before anything was paid
    nothing was learned: networks start at size one in whatever unit comes first, and, where every step earns
    so much `more` than that, from there."""
    assert state.scaling is not None
    moves = scales.unit(state.scaling) / scales.unit(scaling)
    factor = jnp.where(state.scaling.unit == 0, 1.0, moves)
    more = jnp.zeros(()) if more is None else more
    model = optimise.fresh(state.method)
    if method.repaid is not None:
        model = method.repaid(model, factor, more)
    model = choose((factor != 1) | (more != 0), model, state.method)
    model = scales.remembered(state.scaling, scaling, model)
    return state._replace(method=model, scaling=scales.in_unit(scaling, factor))


def policy_mask(method: Method, states: int, state: State) -> Float[Array, "S"]:
    """1 where the policy may look: everywhere, unless the method says where."""
    return jnp.ones(states) if method.policy_mask is None else method.policy_mask(state)


def seen(method: Method, state: AgentState, states: int) -> Float[Array, "S"]:
    """1 where the policy may look: at what the method shows it, and at the clock."""
    shown, clocks = policy_mask(method, states, state.method), scales.clocks(state.scaling)
    return shown if clocks is None else jnp.maximum(shown, clocks)


def policy_batch(
    method: Method, limit: Limit, state: AgentState, transitions: Transitions, key: PRNGKeyArray
) -> PolicyBatch:
    """Steps with the model's rewards, and what it remembers besides, as the policy may see them."""
    if method.recall is not None and transitions.acted is None:  # what others did is off-policy
        key, recall_key = random.split(key)
        remembered = method.recall(state.method, len(transitions.paid), recall_key)
        transitions = jax.tree.map(lambda *x: jnp.concatenate(x), transitions, remembered)
    rewards = method.reward(state.method, transitions)
    # Now, for to a reward model a time limit is no end.
    ends = over(limit, scales.clocks(state.scaling), transitions)
    transitions = transitions._replace(terminated=ends)
    shown = _mask_observations(transitions, seen(method, state, transitions.observation.shape[-1]))
    return PolicyBatch(shown, scales.for_policy(state.scaling, rewards), key)


def update_policy(backbone: Backbone, state: AgentState, lesson: PolicyBatch) -> tuple[AgentState, Metrics]:
    """Optimise the policy."""
    policy, metrics = backbone.update(state.backbone, *lesson)
    return state._replace(backbone=policy), metrics


def actor(method: Method, backbone: Backbone, state: AgentState, states: int) -> dict[str, Array]:
    """Plain arrays with which a worker acts on so many observed numbers, the policy mask among them: the same
    mask as in learning."""
    units = {} if state.scaling is None else {"mean": state.scaling.mean, "scale": state.scaling.scale}
    return {"mask": seen(method, state, states), **units, **backbone.actor(state.backbone)}


def in_own_units(method: Method) -> Method:
    """The method as a function of a whole agent's state and of what an environment says in its own units."""

    def reward(state: AgentState, transitions: Transitions) -> Float[Array, "*B"]:
        found = method.reward(state.method, scales.transitions(state.scaling, transitions))
        return found * scales.unit(state.scaling)

    def credit(state: AgentState, segments: Segments) -> Float[Array, "M T"]:
        assert method.credit is not None
        found = method.credit(state.method, scales.segments(state.scaling, segments))
        return found * scales.unit(state.scaling)

    def edges(state: AgentState) -> Edges:
        assert method.edges is not None
        return method.edges(state.method)

    def reads(state: AgentState) -> Float[Array, "D"]:
        assert method.reads is not None
        return method.reads(state.method)

    def doubts(state: AgentState) -> Float[Array, "N"]:
        assert method.doubts is not None
        return method.doubts(state.method)

    return method._replace(
        reward=reward,
        credit=None if method.credit is None else credit,
        edges=None if method.edges is None else edges,
        reads=None if method.reads is None else reads,
        doubts=None if method.doubts is None else doubts,
    )


def _mask_observations(transitions: Transitions, mask: Float[Array, "S"]) -> Transitions:
    mask = jnp.broadcast_to(mask, transitions.observation.shape)
    return transitions._replace(
        observation=transitions.observation * mask,
        next_observation=transitions.next_observation * mask,
    )
