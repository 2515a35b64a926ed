"""What one iteration learns, for one lane: in turn, an update of the model and some of the policy.

Algorithm 1 of the GRD paper with one of each. Steps and segments are drawn beforehand, all at once.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from apportion import agent as agents
from apportion import replay as replays
from apportion.agent import AgentState
from apportion.replay import Draw, Replay
from apportion.settings import Config
from apportion.spec import Spec
from apportion.types import Metrics


def updates(
    config: Config, spec: Spec, agent: AgentState, replay: Replay, key: PRNGKeyArray
) -> tuple[AgentState, Replay, Metrics]:
    """All updates of one iteration, and the mean of their metrics."""
    method, backbone = config.make_method(), config.make_backbone()
    count = config.schedule.updates_per_iteration
    every = max(n for n in range(1, method.sampling.every + 1) if count % n == 0)
    draw_key, update_key = jax.random.split(key)
    sampling = dataclasses.replace(method.sampling, every=every)
    draws = replays.draw(replay, draw_key, sampling, backbone.batch_size, count)
    model_keys, policy_keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(update_key, count))
    rounds = jax.tree.map(
        lambda x: x.reshape(count // every, every, *x.shape[1:]),
        (draws.steps, draws.step_segments, policy_keys),
    )

    names: list[str] = []  # of the metrics, in the order of their values

    def one_round(state: tuple[AgentState, Array], x: Any) -> tuple[tuple[AgentState, Array], Array]:
        agent, credit = state
        (steps, step_segments, policy_keys), segments, model_key = x
        now = replay._replace(credit=credit)
        batch = replays.gather(now, Draw(steps[0], step_segments[0], segments), spec.max_segment_steps)
        agent, metrics = agents.update_model(method, agent, batch, model_key)
        # The first policy update sees the model's transitions, the others draw their own.
        agent, policy = agents.update_policy(method, backbone, agent, batch.transitions, policy_keys[0])
        if every > 1:

            def policy_update(agent: AgentState, x: Any) -> tuple[AgentState, Metrics]:
                steps, step_segments, key = x
                transitions = replays.gather_transitions(now, steps, step_segments)
                return agents.update_policy(method, backbone, agent, transitions, key)

            others = (steps[1:], step_segments[1:], policy_keys[1:])
            agent, rest = jax.lax.scan(policy_update, agent, others)
            policy = jax.tree.map(lambda one, more: (one + jnp.sum(more)) / every, policy, rest)
        if method.credit is not None and batch.segments is not None:
            now = replays.with_credit(now, batch.segments, method.credit(agent.method, batch.segments))
        metrics |= policy
        names[:] = metrics
        # As one array: on a GPU each array that a scan collects costs a kernel per update.
        return (agent, now.credit), jnp.stack([metrics[name] for name in names])

    start = (agent, replay.credit)
    (agent, credit), values = jax.lax.scan(one_round, start, (rounds, draws.segments, model_keys[::every]))
    return agent, replay._replace(credit=credit), dict(zip(names, jnp.mean(values, axis=0), strict=True))
