"""Imagined steps among real ones: short branches through a method's own model, under the policy of now.

Model-based policy optimisation (Janner et al., NeurIPS 2019) with the model that GRD learns anyway: branches
start at states from the replay, and what they lead to is rewarded by the method as real steps are. Where the
model doubts, or a branch has ended, the real step stays in its place.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

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
    length: int = 1
    """Steps of a branch that starts at a state from the replay."""
    after: int = 500
    """Updates of the model before its steps are used."""
    doubt: float = 2.0
    """The model's largest doubt, in standard deviations of that about real steps; beyond, real steps stay."""

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, f"imagine.share={self.share} must be from 0 to 1")
        check(self.length >= 1, f"imagine.length={self.length} must be at least 1")
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
    """Real steps, the first of them replaced by branches from where some began; and the share that is."""
    assert agent.imagination is not None
    size = len(real.paid)
    wanted = round(imagine.share * size)
    starts = real.observation[: -(-wanted // imagine.length)]
    steps, usable = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[:wanted],
        branches(imagine, method, backbone, agent, starts, key),
    )
    usable = usable & (agent.imagination.updates >= imagine.after)

    def choose(real: Array, imagined: Array) -> Array:
        chosen = jnp.where(usable.reshape(-1, *[1] * (real.ndim - 1)), imagined, real[:wanted])
        return jnp.concatenate([chosen, real[wanted:]])

    return jax.tree.map(choose, real, steps), jnp.sum(usable.astype(jnp.float32)) / size


def branches(
    imagine: Imagine,
    method: Method,
    backbone: Backbone,
    agent: AgentState,
    starts: Float[Array, "N S"],
    key: PRNGKeyArray,
) -> tuple[Transitions, Bool[Array, "T N"]]:
    """T steps from each of N states: [T, N], and which of them may be used."""
    dynamics, imagination = method.dynamics, agent.imagination
    assert dynamics is not None
    assert imagination is not None
    seen = jnp.broadcast_to(agents.seen(method, agent), starts.shape)

    def act(observation: Float[Array, "S"], key: PRNGKeyArray) -> Float[Array, "A"]:
        return backbone.act(agent.backbone, observation, key, True)

    def step(
        at: tuple[Float[Array, "N S"], Bool[Array, "N"]], key: PRNGKeyArray
    ) -> tuple[tuple[Array, Array], tuple[Transitions, Array]]:
        observation, alive = at
        act_key, lead_key = jax.random.split(key)
        action = jax.vmap(act)(observation * seen, jax.random.split(act_key, len(starts)))
        found = dynamics.imagine(imagination.model, agent.method, observation, action, lead_key)
        after = scales.within_reach(agent.scaling, found.next_observation)
        usable = alive & (found.doubt <= imagine.doubt)
        taken = _step(observation, action, after, found.terminated)
        return (after, usable & ~found.terminated), (taken, usable)

    alive = jnp.ones(len(starts), bool)
    _, grown = jax.lax.scan(step, (starts, alive), jax.random.split(key, imagine.length))
    return grown


def _step(
    observation: Float[Array, "N S"],
    action: Float[Array, "N A"],
    after: Float[Array, "N S"],
    terminated: Bool[Array, "N"],
) -> Transitions:
    """Of no segment: one that paid nothing, so that exact sums leave its rewards alone."""
    nothing = jnp.zeros(len(observation))
    place = jnp.zeros(len(observation), jnp.int32)
    return Transitions(
        observation=observation,
        action=action,
        next_observation=after,
        paid=nothing,
        true_reward=nothing,
        terminated=terminated,
        segment_total=nothing,
        segment_length=place + 1,
        step_in_segment=place,
        step_in_episode=place,
        credit=nothing,
    )
