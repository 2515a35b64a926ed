"""Method x backbone → one agent: what is learned about the reward teaches the policy (paper, Algorithm 1)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import (
    Backbone,
    Batch,
    Findings,
    GraphView,
    Method,
    Metrics,
    State,
    Transitions,
)
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.nn import optimise
from apportion.nn.lanes import choose
from apportion.training import scaling as scales
from apportion.training.scaling import Limit, Scaling, over


class Awaited(NamedTuple):
    """What a look of the method has found, or is still about to find, and when it counts."""

    findings: Findings
    scaling: Scaling | None  # the units in which it looks
    at: Int[Array, ""]  # the iteration after which it counts; -1: nothing is awaited


class AgentState(NamedTuple):
    method: State
    backbone: State
    scaling: Scaling | None  # None: observations and rewards as they come
    awaited: Awaited | None = None  # None for methods that never look


class PolicyBatch(NamedTuple):
    """What one update of the policy learns from."""

    transitions: Transitions  # with the dimensions only that the policy may see
    rewards: Float[Array, "B"]  # as the model has them, brought to a usual size
    key: PRNGKeyArray


def init(
    method: Method, backbone: Backbone, key: PRNGKeyArray, spec: Spec, scaling: Scaling | None
) -> AgentState:
    method_key, backbone_key = random.split(key)
    model, awaited = method.init(method_key, spec), None
    if method.revision is not None:
        awaited = Awaited(method.revision.findings(model), scaling, jnp.asarray(-1, jnp.int32))
    return AgentState(model, backbone.init(backbone_key, spec), scaling, awaited)


def update_model(
    method: Method, state: AgentState, batch: Batch, key: PRNGKeyArray
) -> tuple[AgentState, Metrics]:
    """Optimise the generative model with segments D1 and transitions D2, both in the learners' units."""
    model, metrics = method.update(state.method, batch, key)
    state = state._replace(method=model)
    states = batch.transitions.observation.shape[-1]
    return state, metrics | {"policy_mask_on": jnp.mean(visible(method, state, states))}


def learn(
    method: Method, state: AgentState, replay: Replay, raw: Batch, key: PRNGKeyArray
) -> tuple[AgentState, Replay, Metrics]:
    """The same with what was drawn from a replay, which keeps the credit that the method gives to steps."""
    seen = scales.batch(state.scaling, raw)
    state, metrics = update_model(method, state, seen, key)
    if method.credit is not None and raw.segments is not None and seen.segments is not None:
        given = method.credit(state.method, seen.segments) * scales.unit(state.scaling)
        replay = replays.with_credit(replay, raw.segments, given)
    return state, replay, metrics


def surveyed(method: Method, spec: Spec, state: AgentState, replay: Replay) -> AgentState:
    """The agent after its method has looked over all segments, if it is one that does."""
    if method.memory is None:
        return state
    found = scales.survey(state.scaling, replays.survey(replay, spec.max_segment_steps))
    return state._replace(method=method.memory.survey(state.method, found))


def measured(method: Method, state: AgentState, replay: Replay) -> AgentState:
    """With the units that a replay brings, from now on."""
    assert state.scaling is not None
    found = scales.measured(state.scaling, replay)
    return rescaled(method, state, found, scales.rate(state.scaling, found, replay))


def rescaled(
    method: Method, state: AgentState, scaling: Scaling, shift: Float[Array, ""] | None = None
) -> AgentState:
    """With other units, by PopArt (van Hasselt et al., 2016): where that of pay has moved, rewards stay what
    they are to the environment, as far as a method can see to that, and optimisers forget slopes that were of
    another size. Segments that a method remembers follow their units, as those that it draws from the replay
    do; so do running statistics of what a policy sees, which would take hundreds of updates to come there.
    Before anything was paid nothing was learned: networks start at size one in whatever unit comes first,
    and, where every step earns so much more than that, from this `shift` on."""
    assert state.scaling is not None
    moves = scales.unit(state.scaling) / scales.unit(scaling)
    factor = jnp.where(state.scaling.unit == 0, 1.0, moves)
    shift = jnp.zeros(()) if shift is None else shift
    model = optimise.fresh(state.method)
    if method.rescale is not None:
        model = method.rescale(model, factor, shift)
    model = choose((factor != 1) | (shift != 0), model, state.method)
    model = scales.remembered(state.scaling, scaling, model)
    seen = visible(method, state, len(scaling.mean))
    policy = scales.followed(state.scaling, scaling, state.backbone, seen)
    return state._replace(method=model, backbone=policy, scaling=scales.in_unit(scaling, factor))


def policy_mask(method: Method, states: int, state: State) -> Float[Array, "S"]:
    """1 where the policy may look: everywhere, unless the method says where."""
    return jnp.ones(states) if method.policy_mask is None else method.policy_mask(state)


def visible(method: Method, state: AgentState, states: int) -> Float[Array, "S"]:
    """1 where the policy may look: at what the method shows it, and at the clock."""
    shown, clocks = policy_mask(method, states, state.method), scales.clocks(state.scaling)
    return shown if clocks is None else jnp.maximum(shown, clocks)


def policy_batch(
    method: Method, limit: Limit, state: AgentState, transitions: Transitions, key: PRNGKeyArray
) -> PolicyBatch:
    """Steps with the model's rewards, and what it remembers besides, as the policy may see them."""
    recall = None if method.memory is None else method.memory.recall
    if recall is not None and transitions.acted is None:  # what others did is off-policy
        key, recall_key = random.split(key)
        remembered = recall(state.method, len(transitions.paid), recall_key)
        transitions = jax.tree.map(lambda *x: jnp.concatenate(x), transitions, remembered)
    rewards = method.reward(state.method, transitions)
    # Now, for to a reward model a time limit is no end.
    ends = over(limit, scales.clocks(state.scaling), transitions)
    transitions = transitions._replace(terminated=ends)
    mask = visible(method, state, transitions.observation.shape[-1])
    mask = jnp.broadcast_to(mask, transitions.observation.shape)
    observation, after = transitions.observation * mask, transitions.next_observation * mask
    shown = transitions._replace(observation=observation, next_observation=after)
    return PolicyBatch(shown, scales.for_policy(state.scaling, rewards), key)


def update_policy(backbone: Backbone, state: AgentState, lesson: PolicyBatch) -> tuple[AgentState, Metrics]:
    policy, metrics = backbone.update(state.backbone, *lesson)
    return state._replace(backbone=policy), metrics


def actor(method: Method, backbone: Backbone, state: AgentState, states: int) -> dict[str, Array]:
    """Plain arrays with which a worker acts on so many observed numbers, the policy mask among them: the same
    mask as in learning."""
    units = {} if state.scaling is None else {"mean": state.scaling.mean, "scale": state.scaling.scale}
    return {"mask": visible(method, state, states), **units, **backbone.actor(state.backbone)}


def in_own_units(method: Method) -> Method:
    """The method as a function of a whole agent's state and of what an environment says in its own units."""

    def own(judge: Callable[[State, Any], Array], seen: Callable[[Scaling | None, Any], Any]) -> Any:
        return lambda state, raw: judge(state.method, seen(state.scaling, raw)) * scales.unit(state.scaling)

    def of_agent(view: Callable[[State], Any]) -> Callable[[AgentState], Any]:
        return lambda state: view(state.method)

    views: Any = None if method.graph is None else [view and of_agent(view) for view in method.graph]
    return method._replace(
        reward=own(method.reward, scales.transitions),
        credit=method.credit and own(method.credit, scales.segments),
        graph=None if views is None else GraphView(*views),
    )
