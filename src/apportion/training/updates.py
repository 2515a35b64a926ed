"""What one iteration learns, for one lane: in turn, an update of the model and some of the policy.

Algorithm 1 of the GRD paper with one of each. Steps and segments are drawn beforehand, all at once.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Metrics
from apportion.data import replay as replays
from apportion.data.replay import Draw, Replay
from apportion.training import agent as agents
from apportion.training.agent import AgentState, Lesson
from apportion.training.settings import Config


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
    policy_names: list[str] = []

    def one_policy_update(agent: AgentState, lesson: Lesson) -> tuple[AgentState, Array]:
        agent, metrics = agents.update_policy(backbone, agent, lesson)
        return agent, _in_one_array(metrics, policy_names)

    def one_round(state: tuple[AgentState, Array], x: Any) -> tuple[tuple[AgentState, Array], Array]:
        agent, credit = state
        (steps, step_segments, policy_keys), segments, model_key = x
        now = replay._replace(credit=credit)
        drawn = replays.gather(now, Draw(steps, step_segments, segments), spec.max_segment_steps)
        # The first policy update sees the model's transitions, the others their own.
        first = jax.tree.map(lambda x: x[0], drawn.transitions)
        agent, metrics = agents.update_model(method, agent, drawn._replace(transitions=first), model_key)
        # The model stands still for a round: all of its rewards in one pass.
        lessons = jax.vmap(partial(agents.lesson, method, agent.method))(drawn.transitions, policy_keys)
        agent, values = jax.lax.scan(one_policy_update, agent, lessons)
        metrics |= _mean(values, policy_names)
        if method.credit is not None and drawn.segments is not None:
            now = replays.with_credit(now, drawn.segments, method.credit(agent.method, drawn.segments))
        return (agent, now.credit), _in_one_array(metrics, names)

    start = (agent, replay.credit)
    (agent, credit), values = jax.lax.scan(one_round, start, (rounds, draws.segments, model_keys[::every]))
    return agent, replay._replace(credit=credit), _mean(values, names)


def _in_one_array(metrics: Metrics, names: list[str]) -> Float[Array, "K"]:
    """Metrics as one array, and their names: on a GPU each array that a scan collects costs a kernel."""
    names[:] = metrics
    return jnp.stack(list(metrics.values()))


def _mean(values: Float[Array, "N K"], names: list[str]) -> Metrics:
    return dict(zip(names, jnp.mean(values, axis=0), strict=True))
