"""Imagined steps among real ones: single steps through a method's own model, under the current policy.

Model-based policy optimisation (Janner et al., NeurIPS 2019) with branches of one step, in the model that GRD
learns: they start at states from the replay, and the method rewards what they lead to as it does real steps.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import check
from apportion.core.types import Backbone, Dynamics, Method, Metrics, Transitions
from apportion.training import agent as agents
from apportion.training import scaling as scales
from apportion.training.agent import AgentState, Imagination


@dataclass(frozen=True)
class Imagine:
    """How much of what the policy learns from is imagined."""

    share: float = 0.0
    """Share of imagined steps in the policy's batches; 0: none. The method must have a model: grd has."""
    after: int = 500
    """Updates of the model before its steps are used."""

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, f"imagine.share={self.share} must be from 0 to 1")
        check(self.after >= 0, f"imagine.after={self.after} must not be negative")


def learn(dynamics: Dynamics, agent: AgentState, steps: Transitions) -> tuple[AgentState, Metrics]:
    """One update of the model, by real steps."""
    before = agent.imagination
    assert before is not None
    model, metrics = dynamics.update(before.model, agent.method, steps)
    return agent._replace(imagination=Imagination(model, before.updates + 1)), metrics


def mixed(
    imagine: Imagine,
    method: Method,
    backbone: Backbone,
    agent: AgentState,
    real: Transitions,
    key: PRNGKeyArray,
) -> tuple[Transitions, Float[Array, ""]]:
    """Real steps, the first of them replaced by steps that the policy takes in the model from the same
    states; and the share that is."""
    assert method.dynamics is not None
    assert agent.imagination is not None
    size, count = len(real.paid), round(imagine.share * len(real.paid))
    start = real.observation[:count]
    act_key, lead_key = jax.random.split(key)
    seen = start * jnp.broadcast_to(agents.seen(method, agent), start.shape)

    def act(observation: Float[Array, "S"], key: PRNGKeyArray) -> Float[Array, "A"]:
        return backbone.act(agent.backbone, observation, key, True)

    action = jax.vmap(act)(seen, jax.random.split(act_key, count))
    found = method.dynamics.imagine(agent.imagination.model, agent.method, start, action, lead_key)
    nothing, place = jnp.zeros(count), jnp.zeros(count, jnp.int32)
    steps = Transitions(
        observation=start,
        action=action,
        next_observation=scales.within_reach(agent.scaling, found.next_observation),
        paid=nothing,  # by no segment
        true_reward=nothing,
        terminated=found.terminated,
        segment_total=nothing,
        segment_length=place + 1,
        step_in_segment=place,
        step_in_episode=place,
        credit=nothing,
    )
    ready = agent.imagination.updates >= imagine.after

    def choose(real: Array, imagined: Array) -> Array:
        return jnp.concatenate([jnp.where(ready, imagined, real[:count]), real[count:]])

    return jax.tree.map(choose, real, steps), ready.astype(jnp.float32) * count / size
