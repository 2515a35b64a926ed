"""What one iteration learns, for one lane: in turn, an update of the model and some of the policy.

Algorithm 1 of the GRD paper with one of each. Steps and segments are drawn beforehand, all at once.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.core.types import (
    Acted,
    Backbone,
    Method,
    Metrics,
    Returns,
    Sampling,
    Transitions,
)
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Draw, Replay
from apportion.envs.faults import Faults
from apportion.nn.lanes import choose
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.scaling import Limit
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
    if backbone.returns is not None:
        # A child of its own: the others stay what they are where nobody asks for returns.
        agent = watch_returns(method, backbone.returns, agent, replay, jax.random.fold_in(key, 4))
    sampling = dataclasses.replace(wanted, every=every)
    draws = replays.draw(replay, draw_key, sampling, backbone.batch_size, count)
    model_keys, policy_keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(update_key, count))
    rounds = jax.tree.map(
        lambda x: x.reshape(count // every, every, *x.shape[1:]),
        (draws.steps, draws.step_segments, policy_keys),
    )

    def one_round(state: tuple[AgentState, Array], x: Any) -> tuple[tuple[AgentState, Array], Metrics]:
        agent, credit = state
        (steps, step_segments, policy_keys), segments, model_key = x
        now = replay._replace(credit=credit)
        raw = replays.gather(now, Draw(steps, step_segments, segments), spec.max_segment_steps)
        # The first policy update sees the model's transitions, the others their own.
        first = raw._replace(transitions=jax.tree.map(lambda x: x[0], raw.transitions))
        taken = scales.transitions(agent.scaling, raw.transitions)
        agent, now, metrics = agents.learn(method, agent, now, first, model_key)
        if backbone.log_density is None:
            # The model stands still for a round: all of its rewards in one pass.
            lessons = jax.vmap(partial(agents.policy_batch, method, limit, agent))(taken, policy_keys)
            agent, found = repeat(partial(agents.update_policy, backbone), agent, lessons)
            metrics |= found
        return (agent, now.credit), metrics

    start = (agent, replay.credit)
    (agent, credit), metrics = repeat(one_round, start, (rounds, draws.segments, model_keys[::every]))
    replay = replay._replace(credit=credit)
    if backbone.log_density is not None:
        # Of what a chunk closes, one segment at the most began before it.
        places = config.schedule.steps_per_iteration + spec.max_segment_steps
        agent, found = learn_on_policy(
            method, backbone, limit, agent, newest_steps(replay, since, places), policy_keys[0]
        )
        metrics |= found
    return agent, replay, metrics


def watch_rewards(method: Method, agent: AgentState, replay: Replay, key: PRNGKeyArray) -> AgentState:
    """Note how large the model's rewards are by now, and at first whether they have a level."""
    if agent.scaling is None:
        return agent
    drawn = jax.tree.map(lambda x: x[0], replays.draw(replay, key, Sampling(), _WATCHED_STEPS, 1))
    transitions = scales.transitions(agent.scaling, replays.gather(replay, drawn, 1).transitions)
    rewards = method.reward(agent.method, transitions)
    return agent._replace(scaling=scales.watched(agent.scaling, rewards, jnp.any(replay.terminated)))


def watch_returns(
    method: Method, wanted: Returns, agent: AgentState, replay: Replay, key: PRNGKeyArray
) -> AgentState:
    """Note how large returns are by the rewards that the model gives now: along the newest steps, and along
    others from the beginning of an episode on."""
    assert agent.scaling is not None
    drawn = jax.tree.map(lambda x: x[0], replays.draw(replay, key, Sampling(), 8, 1))
    inside = replays.gather_transitions(replay, drawn.steps, drawn.step_segments).step_in_episode
    oldest = replay.segment_first_step[replay.oldest % replay.paid.shape[0]]
    newest = jnp.maximum(replay.steps - _WATCHED_STEPS, oldest)
    starts = (drawn.steps - inside).at[0].set(newest)
    numbers = starts[:, None] + jnp.arange(_WATCHED_STEPS)[None, :]
    real = numbers < replay.steps
    numbers = jnp.minimum(numbers, replay.steps - 1)
    raw = replays.gather_transitions(replay, numbers, replays.segments_of(replay, numbers))
    rewards = method.reward(agent.method, scales.transitions(agent.scaling, raw))
    rewards, begins = jnp.where(real, rewards, 0.0), raw.step_in_episode == 0
    return agent._replace(scaling=scales.watched_returns(agent.scaling, rewards, begins, real, wanted))


def key_from(origin: UInt32[Array, "3"]) -> PRNGKeyArray:
    """The key of a seed, a stream of randomness and a number."""
    seed, stream, number = origin
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), number)


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


# --- On-policy backbones: the log density of each action when it comes in, the newest steps in their order.
# While they learn nobody acts, so the policy that acted is the agent as it is when a chunk comes in. The
# replay keeps densities: a segment may be closed, and so be learned from, iterations after its first step.


def with_log_density(
    method: Method, backbone: Backbone, spec: Spec, agent: AgentState, chunk: Chunk, random: Bool[Array, ""]
) -> Chunk:
    """The chunk with the log density of each action: the policy's, or that of actions at random."""
    if backbone.log_density is None:
        return chunk
    seen = scales.observations(agent.scaling, chunk.observation)
    seen = seen * jnp.broadcast_to(agents.visible(method, agent, seen.shape[-1]), seen.shape)
    chosen = backbone.log_density(agent.backbone, seen, chunk.action)
    anything = -math.log(spec.action_size) if spec.discrete else -spec.action_size * math.log(2)
    return chunk._replace(log_density=jnp.where(random, anything, chosen))


def newest_steps(replay: Replay, since: Int[Array, ""], places: int) -> Transitions:
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


def learn_on_policy(
    method: Method, backbone: Backbone, limit: Limit, agent: AgentState, steps: Transitions, key: PRNGKeyArray
) -> tuple[AgentState, Metrics]:
    """One update of the policy from the newest steps; nothing moves where there are none."""
    assert steps.acted is not None
    lesson = agents.policy_batch(method, limit, agent, scales.transitions(agent.scaling, steps), key)
    learned, metrics = agents.update_policy(backbone, agent, lesson)
    return choose(steps.acted.real[0], learned, agent), metrics


# --- Which lanes learn, and which are frozen because their losses are no numbers. Whether an update left
# numbers is decided on the device, where it is taken back. The host hears of it two iterations later, when
# that costs no waiting: by then the environments have acted on what came of it.


LOST = "its losses are no numbers any more (NaN): a smaller --backbone.learning-rate may help"


class Islands:
    """Follows all lanes through a training."""

    def __init__(self, faults: Faults, lanes: int) -> None:
        self.faults = faults
        self.lanes = lanes
        self.sound: Array = devices.spread(jnp.ones(lanes, bool), lanes)  # [L] False: its losses are gone
        self._unread: deque[tuple[int, Array]] = deque()  # of each iteration, `sound` after it

    def learning(self, iteration: int, segments: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[L] which lanes learn in this iteration: those that have something to learn from."""
        return (segments > 0) & ~self.frozen(iteration)

    def frozen(self, iteration: int) -> NDArray[np.bool_]:
        """[L] which lanes stand still in this iteration, as far as the host knows."""
        return np.isin(np.arange(self.lanes), list(self.faults.frozen_by(iteration)))

    def updated(self, iteration: int, sound: Bool[Array, "L"]) -> None:
        """What an iteration's updates left behind."""
        self.sound = sound
        self._unread.append((iteration, sound))
        self._read(leave=2)  # iterations that may be under way

    def settle(self) -> None:
        """Wait until all that was computed is known here, too."""
        self._read(leave=0)

    def _read(self, leave: int) -> None:
        while len(self._unread) > leave:
            iteration, sound = self._unread.popleft()
            for lane in np.flatnonzero(~np.asarray(sound)).tolist():
                self.faults.freeze(lane, iteration, LOST)


def keep_if_finite(
    before: AgentState, after: AgentState, metrics: Metrics, learns: Bool[Array, ""], sound: Bool[Array, ""]
) -> tuple[AgentState, Metrics, Bool[Array, ""]]:
    """One lane after its updates: as before, if it was not to learn or its losses are no numbers.

    `sound` is False from then on. Metrics of a lane that does not learn are NaN.
    """
    losses = [value for name, value in metrics.items() if name.endswith("loss")]
    finite = jnp.all(jnp.array([jnp.isfinite(loss) for loss in losses], bool))
    sound = sound & (finite | ~learns)
    learned = learns & sound

    agent = choose(learned, after, before)
    shown = {name: jnp.where(learned, value, jnp.nan) for name, value in metrics.items()}
    return agent, shown, sound
