"""On-policy backbones: what is noted of each step when it comes in, and the newest steps in their order.

While they learn nobody acts, so that the policy that acted is the agent as it is when a chunk comes in. What
it thought of each action then is kept in the replay: a segment may be closed, and so be learned from, several
iterations after its first step.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Acted, Backbone, Method, Metrics, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.nn.lanes import choose
from apportion.training import agent as agents
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.limits import Limit


def noted(
    method: Method, backbone: Backbone, spec: Spec, agent: AgentState, chunk: Chunk, random: Bool[Array, ""]
) -> Chunk:
    """The chunk with the log density of each action: the policy's, or that of actions at random."""
    if backbone.log_density is None:
        return chunk
    seen = scales.observations(agent.scaling, chunk.observation)
    seen = seen * jnp.broadcast_to(agents.seen(method, agent), seen.shape)
    chosen = backbone.log_density(agent.backbone, seen, chunk.action)
    anything = -math.log(spec.action_size) if spec.discrete else -spec.action_size * math.log(2)
    return chunk._replace(log_density=jnp.where(random, anything, chosen))


def newest(replay: Replay, since: Int[Array, ""], places: int) -> Transitions:
    """The steps from number `since` on, in their order."""
    assert replay.log_density is not None
    capacity = replay.paid.shape[0]
    numbers = since + jnp.arange(places)
    real = numbers < replay.steps
    numbers = jnp.minimum(numbers, replay.steps - 1)
    segments = replays.segments_of(replay, numbers)
    found = replays.gather_transitions(replay, numbers, segments)
    row = replay.segment_start[segments % capacity] + found.step_in_segment
    # The observation after an episode's last step has a row of its own: there, rows do not follow.
    follows = real & jnp.append(real[1:], False) & (jnp.append(row[1:], 0) == row + 1)
    return found._replace(acted=Acted(replay.log_density[row % capacity], follows, real))


def learn(
    method: Method,
    backbone: Backbone,
    limit: Limit,
    agent: AgentState,
    replay: Replay,
    since: Int[Array, ""],
    places: int,
    key: PRNGKeyArray,
) -> tuple[AgentState, Metrics]:
    """One update of the policy from the steps since then; nothing moves where there are none."""
    steps = scales.transitions(agent.scaling, newest(replay, since, places))
    lesson = agents.lesson(method, limit, agent, steps, key)
    learned, metrics = agents.update_policy(backbone, agent, lesson)
    return choose(replay.steps > since, learned, agent), metrics
