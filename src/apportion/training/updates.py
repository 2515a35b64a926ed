"""What one iteration learns, for one lane: in turn, an update of the model and some of the policy.

Algorithm 1 of the GRD paper with one of each. Steps and segments are drawn beforehand, all at once.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Draw, Replay
from apportion.training import agent as agents
from apportion.training import imagination, rollouts
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.limits import Limit
from apportion.training.settings import Config

_WATCHED_STEPS = 1024


def updates(
    config: Config, spec: Spec, agent: AgentState, replay: Replay, since: Int[Array, ""], key: PRNGKeyArray
) -> tuple[AgentState, Replay, Metrics]:
    """All updates of one iteration, and the mean of their metrics; steps from number `since` on are new."""
    method, backbone = config.make_method(), config.make_backbone()
    limit = Limit(spec.max_episode_steps, config.env.time_up)
    count = config.schedule.updates_per_iteration
    wanted = method.sampling.suited(spec.max_segment_steps)
    every = max(n for n in range(1, wanted.every + 1) if count % n == 0)
    draw_key, update_key, watch_key = jax.random.split(key, 3)
    agent = watch_rewards(method, agent, replay, watch_key)
    sampling = dataclasses.replace(wanted, every=every)
    draws = replays.draw(replay, draw_key, sampling, backbone.batch_size, count)
    model_keys, policy_keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(update_key, count))
    # A fourth child: the three above stay what they are where nobody imagines.
    imagine_keys = jax.random.split(jax.random.fold_in(key, 3), count) if config.imagines else None
    rounds = jax.tree.map(
        lambda x: x.reshape(count // every, every, *x.shape[1:]),
        (draws.steps, draws.step_segments, policy_keys, imagine_keys),
    )

    def one_round(state: tuple[AgentState, Array], x: Any) -> tuple[tuple[AgentState, Array], Metrics]:
        agent, credit = state
        (steps, step_segments, policy_keys, imagine_keys), segments, model_key = x
        now = replay._replace(credit=credit)
        raw = replays.gather(now, Draw(steps, step_segments, segments), spec.max_segment_steps)
        drawn = scales.batch(agent.scaling, raw)
        # The first policy update sees the model's transitions, the others their own.
        first = jax.tree.map(lambda x: x[0], drawn.transitions)
        agent, metrics = agents.update_model(method, agent, drawn._replace(transitions=first), model_key)
        if backbone.log_density is None:
            taken = drawn.transitions
            agent, found = policy_round(config, limit, agent, taken, policy_keys, imagine_keys)
            metrics |= found
        return (agent, kept_credit(method, agent, now, raw, drawn)), metrics

    start = (agent, replay.credit)
    (agent, credit), metrics = repeat(one_round, start, (rounds, draws.segments, model_keys[::every]))
    replay = replay._replace(credit=credit)
    if backbone.log_density is not None:
        # Of what a chunk closes, one segment at the most began before it.
        places = config.schedule.steps_per_iteration + spec.max_segment_steps
        key = policy_keys[0]
        agent, policy_metrics = rollouts.learn(method, backbone, limit, agent, replay, since, places, key)
        metrics |= policy_metrics
    return agent, replay, metrics


def policy_round(
    config: Config,
    limit: Limit,
    agent: AgentState,
    steps: Transitions,
    policy_keys: PRNGKeyArray,
    imagine_keys: Any,  # None where nobody imagines
) -> tuple[AgentState, Metrics]:
    """An update of the policy for each of some batches of steps, a share of which may be imagined: by the
    policy with which the round begins, in a model that has learned from these batches first."""
    metrics: Metrics = {}
    method, backbone = config.make_method(), config.make_backbone()
    if config.imagines:
        assert method.dynamics is not None
        agent, metrics = repeat(partial(imagination.learn, method.dynamics), agent, steps)
        mix = partial(imagination.mixed, config.imagine, method, backbone, agent)
        steps, share = jax.vmap(mix)(steps, imagine_keys)
        metrics |= {"imagined_share": jnp.mean(share)}
    # The model stands still for a round: all of its rewards in one pass.
    lessons = jax.vmap(partial(agents.lesson, method, limit, agent))(steps, policy_keys)
    agent, policy_metrics = repeat(partial(agents.update_policy, backbone), agent, lessons)
    return agent, metrics | policy_metrics


def kept_credit(
    method: Method, agent: AgentState, replay: Replay, raw: Batch, seen: Batch
) -> Float[Array, "N"]:
    """The replay's credit with what the method gives to the steps of a batch's segments, in the environment's
    unit; as it was for methods that give none."""
    if method.credit is None or raw.segments is None or seen.segments is None:
        return replay.credit
    given = method.credit(agent.method, seen.segments) * scales.unit(agent.scaling)
    return replays.with_credit(replay, raw.segments, given).credit


def watch_rewards(method: Method, agent: AgentState, replay: Replay, key: PRNGKeyArray) -> AgentState:
    """Note how large the model's rewards are by now, and at first whether they have a level."""
    if agent.scaling is None:
        return agent
    drawn = jax.tree.map(lambda x: x[0], replays.draw(replay, key, Sampling(), _WATCHED_STEPS, 1))
    transitions = scales.transitions(agent.scaling, replays.gather(replay, drawn, 1).transitions)
    rewards = method.reward(agent.method, transitions)
    return agent._replace(scaling=scales.watched(agent.scaling, rewards, jnp.any(replay.terminated)))


def repeat(update: Callable[[Any, Any], tuple[Any, Metrics]], state: Any, inputs: Any) -> tuple[Any, Metrics]:
    """An update for each of the inputs, one after the other, and the mean of their metrics.

    The metrics travel as one array: on a GPU each array that a scan collects costs a kernel. Their names are
    noted while the scan traces its step: to ask for them beforehand would trace every update once more.
    """
    names: list[str] = []

    def step(state: Any, x: Any) -> tuple[Any, Float[Array, "K *L"]]:
        state, metrics = update(state, x)
        names[:] = sorted(metrics)
        return state, jnp.stack([metrics[name] for name in names])

    state, values = jax.lax.scan(step, state, inputs)
    return state, dict(zip(names, jnp.mean(values, axis=0), strict=True))
