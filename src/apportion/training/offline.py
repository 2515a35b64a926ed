"""Learning from logged episodes alone: a decomposition, by updates of the method only, and then a policy.

Some episodes are held out. What the learned rewards of each of these sum up to is compared with what it was
paid, now and then: each lane keeps its state of the best moment, and all stop when none has become better for
a while. All lanes learn from the same episodes; only their seeds differ.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from scipy.special import logit

from apportion.core.categories import policy_spec
from apportion.core.config import at_least, check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Record, State, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.messages import Arrays
from apportion.graph.bernoulli import log_losses
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.evaluate import Evaluation, beliefs, judge, transitions_of
from apportion.training.outcomes import Outcomes
from apportion.training.revisions import looked_at_once
from apportion.training.settings import Config
from apportion.training.uneven import paddings, redistribute_in_groups
from apportion.training.updates import repeat

TRANSITIONS = 256  # single steps beside the segments of one update: as many as a policy would learn from
CLEARLY = 0.98  # an error must fall to this part of the smallest before to count as progress
ENOUGH = 0.001  # share of the outcomes' variance; to explain the rest is not worth the time


@dataclass(frozen=True)
class Fitting:
    """How long to learn, and what tells that it is enough."""

    updates: int = 10_000
    """Updates at the most."""
    check_every: int = 250
    """Updates between looks at the held-out episodes."""
    patience: int = 8
    """Looks without a smaller error before it stops."""
    held_out: float = 0.2
    """Share of the episodes that nothing is learned from."""
    policy_updates: int = 10_000
    """Updates of the policy, where a --backbone learns one."""

    def __post_init__(self) -> None:
        at_least(self, "", updates=1, check_every=1, patience=1, policy_updates=1)
        check(0 < self.held_out < 1, f"held_out={self.held_out} must be between 0 and 1")


class Logged(NamedTuple):
    """Episodes as learners know them: to learn from, and to judge what was learned."""

    learned: list[Record]
    held_out: list[Record]
    outcomes: Outcomes = Outcomes()  # how those of both become what learners are paid


class Look(NamedTuple):
    """How well the held-out episodes are explained after some updates."""

    step: int  # updates so far
    metrics: Metrics  # [L] means over the updates since the last look
    evaluation: Evaluation
    errors: NDArray[np.float64]  # [L, E] losses of the learned rewards: squares, or log losses of yes and no
    plain: NDArray[np.float64]  # [E] and of the mean outcome
    beliefs: Arrays  # [L, ...] edges, doubts and the policy mask
    agent: AgentState  # [L, ...] of each lane's best look so far, on the host
    last: bool

    @property
    def unexplained(self) -> NDArray[np.float64]:
        """[L] what share of the mean's loss is left: of the outcomes' variance, or log loss."""
        return np.asarray(self.errors.mean(axis=1) / max(float(self.plain.mean()), 1e-300))


def start(config: Config, spec: Spec) -> AgentState:
    """Fresh state of all lanes; of a backbone only where a policy is asked for."""
    method = config.make_method()
    backbone = config.make_backbone() if config.has_policy else None

    def one(key: PRNGKeyArray) -> AgentState:
        scaling = scales.unknown(spec) if config.normalise else None
        policy = None if backbone is None else backbone.init(jax.random.fold_in(key, 1), policy_spec(spec))
        return AgentState(method.init(key, spec), policy, scaling)

    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 0) for seed in config.seeds])
    return jax.jit(jax.vmap(one))(keys)


def offline(config: Config, fitting: Fitting, spec: Spec, data: Logged, known: float = 0.0) -> Iterator[Look]:
    """Learn, and yield every look at the held-out episodes; the last one is at each lane's best state.

    Where something else is `known` to leave only that share of the outcomes' variance unexplained, what is
    learned counts by how near it comes to that: while it is behind, patience is four times shorter."""
    paid = [data.outcomes.paid(record) for record in data.learned]
    method, replay = config.make_method(), fill(spec, paid)
    agent = start(config, spec)
    if agent.scaling is not None:  # all lanes have the same data, so the same units; yes and no have none
        units = jax.jit(jax.vmap(scales.measured, in_axes=(0, None)))(agent.scaling, replay)
        unit = jnp.ones_like(units.unit) if data.outcomes.yes_no else units.unit
        agent = agent._replace(scaling=units._replace(unit=unit))
    agent = looked_at_all(config, agent, [data.outcomes.linear(record) for record in data.learned])
    lengths = np.array([len(record.actions) for record in paid], np.int64)
    base = data.outcomes.level if data.outcomes.yes_no else None
    learn = _compile(config, spec, min(fitting.check_every, fitting.updates), lengths, base)
    judging = _Judging(config, spec, data)
    mask = partial(agents.policy_mask, method, spec.observation_size)
    steps = list(range(fitting.check_every, fitting.updates + 1, fitting.check_every)) or [fitting.updates]
    for number, step in enumerate(steps):
        roots = [jax.random.fold_in(jax.random.key(seed), 1) for seed in config.seeds]
        keys = jnp.stack([jax.random.fold_in(root, number) for root in roots])
        agent, metrics = learn(agent, replay, keys)
        look = judging.look(step, agent, metrics, mask)
        ahead = bool(np.all(judging.smallest > known)) and known > 0
        patience = -(-fitting.patience // 4) if ahead else fitting.patience
        if number + 1 == len(steps) or judging.settled(step, patience * fitting.check_every):
            best = devices.spread(look.agent, config.lanes)
            yield judging.look(step, best, metrics, mask)._replace(last=True)
            return
        yield look


def fill(spec: Spec, records: list[Record]) -> Replay:
    """A replay that holds these episodes and nothing else; the reward of single steps is not known."""
    unknown = [{"true_rewards": np.full(len(record.actions), np.nan, np.float32)} for record in records]
    episodes = [episode_arrays(record) | more for record, more in zip(records, unknown, strict=True)]
    rows = sum(len(episode["actions"]) + 1 for episode in episodes) + 1
    whole = chunk_of(episodes, rows, len(episodes))
    return jax.jit(replays.insert, donate_argnums=0)(replays.init(spec, rows + 1), whole)


def chunk_of(episodes: list[Arrays], rows: int, segments: int) -> Chunk:
    """Whole episodes as a replay takes them, padded to so many rows, more than they have, and segments."""
    ended, paid = (np.concatenate([each[name] for each in episodes]) for name in ("segment_end", "paid"))
    seen = [episode["observations"] for episode in episodes]
    count = sum(map(len, seen))
    lengths = np.array([len(episode["actions"]) for episode in episodes])
    starts = np.cumsum(lengths) - lengths  # counted in steps; each episode has one more row
    ends = np.flatnonzero(ended) + 1
    whose = np.repeat(np.arange(len(lengths)), lengths)
    owner = whose[ends - 1]
    begins = np.maximum(np.append(0, ends[:-1]), starts[owner])
    totals = np.add.reduceat(np.append(paid, 0.0), np.column_stack([begins, ends]).ravel())[::2]

    def of_steps(name: str) -> NDArray[Any]:
        values = np.concatenate([episode[name] for episode in episodes])
        found = np.zeros((rows, *values.shape[1:]), values.dtype)
        found[np.arange(len(values)) + whose] = values
        return found

    of_segments = np.zeros((4, segments))
    of_segments[:, : len(ends)] = begins + owner, ends - begins, totals, starts[owner] + owner
    terminated = np.zeros(rows, np.bool_)
    terminated[starts + lengths - 1 + np.arange(len(lengths))] = [each["terminated"] for each in episodes]
    columns: dict[str, Any] = {
        # Measured units count the row after the last, which stands for a next chunk's first observation.
        "observation": np.concatenate([*seen, np.repeat(seen[-1][-1:], rows - count, 0)]),
        "action": of_steps("actions"),
        "paid": of_steps("paid"),
        "true_reward": of_steps("true_rewards"),
        "terminated": terminated,
        "rows": np.asarray(count, np.int32),
        "segment_start": of_segments[0].astype(np.int32),
        "segment_length": of_segments[1].astype(np.int32),
        "segment_total": of_segments[2].astype(np.float32),
        "episode_start": of_segments[3].astype(np.int32),
        "segments": np.asarray(len(ends), np.int32),
    }
    return Chunk(**columns)


def with_last(observations: NDArray[Any], length: int) -> NDArray[Any]:
    """[T+1, S], also where the last one is not known."""
    if len(observations) > length:
        return observations
    return np.concatenate([observations, after_last(observations, np.array([length]))])


def after_last(seen: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """[E, S] what stands for the states after the last steps [N, S] of episodes: what moved moves on, for a
    last step that leads nowhere could be told from all others, and be paid for anything. What is 0 or 1
    throughout, as categories are, stays."""
    starts, last = np.cumsum(lengths) - lengths, np.cumsum(lengths) - 1
    stays = np.logical_and.reduceat((seen == 0) | (seen == 1), starts)
    return np.asarray(seen[last] + np.where(stays, 0, seen[last] - seen[np.maximum(last - 1, starts)]))


def episode_arrays(record: Record) -> Arrays:
    """An episode in the form that evaluations have; there is no reward of single steps."""
    length = len(record.actions)
    paid = np.zeros(length, np.float32)
    paid[-1] = record.total
    return {
        "observations": with_last(record.observations, length),
        "actions": record.actions,
        "paid": paid,
        "true_rewards": paid,
        "segment_end": np.arange(length) == length - 1,
        "terminated": np.asarray(record.terminated),
    }


class _Judging:
    """Compares what learned rewards sum up to with what was paid, and keeps each lane's best."""

    def __init__(self, config: Config, spec: Spec, data: Logged) -> None:
        method = data.outcomes.in_outcome_units(agents.in_own_units(config.make_method()))
        self.level, self.yes_no = data.outcomes.level, data.outcomes.yes_no
        self.lanes, records = config.lanes, data.held_out[:1_000]  # more would tell the same
        # Of doubles: outcomes may be large numbers that differ little.
        self.paid = np.array([record.total for record in records], np.float64)
        self.held_out = [episode_arrays(record) for record in records]
        earned = [record._replace(total=record.total - self.level) for record in records]
        self.earned = [episode_arrays(record) for record in earned]
        self.mean = float(np.mean([record.total for record in data.learned]))
        lengths = np.array([len(record.actions) for record in records], np.int64)
        self._redistribute = redistribute_in_groups(method, spec, lengths)
        self._beliefs = devices.compiled(partial(beliefs, method), config.lanes)
        self.best: AgentState | None = None
        self.smallest = np.full(config.lanes, np.inf)
        # Of the last clear progress.
        self.reference, self.progress = self.smallest, np.zeros(config.lanes, np.int64)

    def look(self, step: int, agent: AgentState, metrics: Metrics, mask: Callable[[Any], Array]) -> Look:
        rewards = self._redistribute(agent, [self.held_out] * self.lanes)
        unknown = np.full(self.lanes, np.nan)
        evaluation = judge([self.held_out] * self.lanes, rewards, unknown)
        if self.yes_no:
            evaluation = evaluation._replace(return_error=unknown, constant_error=unknown)
        elif self.level:
            earned = judge([self.earned] * self.lanes, rewards, unknown)
            evaluation = evaluation._replace(
                return_error=earned.return_error, constant_error=earned.constant_error
            )
        sums = np.array([[np.sum(each, dtype=np.float64) for each in lane] for lane in rewards]) + self.level
        errors, plain = (sums - self.paid) ** 2, (self.paid - self.mean) ** 2
        if self.yes_no:
            errors, plain = log_losses(sums, self.paid), log_losses(logit(self.mean), self.paid)
        seen = jax.device_get({**self._beliefs(agent), "policy_mask": jax.vmap(mask)(agent.method)})
        look = Look(step, metrics, evaluation, errors, plain, seen, agent, last=False)
        self._keep(step, agent, np.nan_to_num(look.unexplained, nan=np.inf))
        assert self.best is not None
        return look._replace(agent=self.best)

    def _keep(self, step: int, agent: AgentState, error: NDArray[np.float64]) -> None:
        better = error < self.smallest
        now = jax.device_get(agent)
        self.best = now if self.best is None else devices.in_lanes(better, now, self.best)
        self.smallest = np.where(better, error, self.smallest)
        clearly = error < CLEARLY * self.reference
        self.reference = np.where(clearly, error, self.reference)
        self.progress = np.where(clearly, step, self.progress)

    def settled(self, step: int, patience: int) -> bool:
        """Whether no lane will become much better: none has for long, or all are as good as it gets."""
        return bool(np.all((step - self.progress >= patience) | (self.smallest < ENOUGH)))


def looked_at_all(config: Config, agent: AgentState, records: list[Record]) -> AgentState:
    """Let a method that looks at all episodes at once do so: here they are all there from the start."""
    revision = config.make_method().revision
    if revision is None:
        return agent
    steps = sum(len(record.actions) for record in records)
    some = records[:: -(-steps // revision.max_rows) | 1]
    return looked_at_once(revision, agent, some, len(records), config.lanes)


def _compile(
    config: Config, spec: Spec, updates: int, lengths: NDArray[np.int64], base: float | None
) -> Callable[..., tuple[AgentState, Metrics]]:
    """So many updates of the method in every lane, all from one replay of episodes with these lengths. Where
    outcomes are yes or no, `base` is the log odds of yes before any step counts."""
    method = config.make_method()
    sampling = dataclasses.replace(method.sampling.suited(spec.max_segment_steps), every=1)
    padded = paddings(lengths, sampling, config.lanes, spec.max_segment_steps)

    def prepare(agent: AgentState, replay: Replay, key: PRNGKeyArray) -> tuple[AgentState, Any]:
        draw_key, update_key = jax.random.split(key)
        agent = agents.surveyed(method, spec, agent, replay)
        draws = replays.draw(replay, draw_key, sampling, TRANSITIONS, updates)
        return agent, (draws, jax.random.split(update_key, updates))

    def update(steps: int, replay: Replay, agent: AgentState, x: Any) -> tuple[AgentState, Metrics]:
        drawn, update_key = x
        batch = scales.batch(agent.scaling, replays.gather(replay, drawn, steps))
        if base is not None and batch.segments is not None:
            batch = batch._replace(segments=batch.segments._replace(base=jnp.asarray(base, jnp.float32)))
        return agents.update_model(method, agent, batch, update_key)

    def learn(agent: AgentState, replay: Replay, key: PRNGKeyArray) -> tuple[AgentState, Metrics]:
        agent, inputs = prepare(agent, replay, key)
        return repeat(partial(update, padded[-1], replay), agent, inputs)

    def learn_unevenly(agent: AgentState, replay: Replay, key: PRNGKeyArray) -> tuple[AgentState, Metrics]:
        """All lanes at once, for they share the length that each update needs."""
        agent, inputs = devices.over_lanes(prepare, config.lanes, shared=(1,))(agent, replay, key)
        ways = [devices.over_lanes(partial(update, steps, replay), config.lanes) for steps in padded]

        def one(agent: AgentState, x: Any) -> tuple[AgentState, Metrics]:
            longest = jnp.max(replay.segment_length[x[0].segments % len(replay.segment_length)])
            return jax.lax.switch(jnp.sum(longest > jnp.array(padded[:-1])), ways, agent, x)

        return repeat(one, agent, jax.tree.map(lambda each: jnp.swapaxes(each, 0, 1), inputs))

    every = devices.over_lanes(learn, config.lanes, shared=(1,)) if len(padded) == 1 else learn_unevenly
    return jax.jit(every, donate_argnums=(0,))


# --- A policy from logged steps and a reward for each of them: updates of the backbone only, all in one scan


def all_steps(records: Sequence[Record], actions: Sequence[NDArray[Any]] | None = None) -> Transitions:
    """[N] the steps of episodes one after the other, in the log's units; with other `actions` [T, A] where a
    policy knows them otherwise than a method does. After the last step its own action stands for the next."""
    done = [record.actions for record in records] if actions is None else actions
    episodes = [
        transitions_of(episode_arrays(record) | {"actions": np.asarray(each, np.float32)})
        for record, each in zip(records, done, strict=True)
    ]
    following: Any = np.concatenate([each.action[[*range(1, len(each.action)), -1]] for each in episodes])
    steps: Transitions = jax.tree.map(lambda *columns: np.concatenate(columns), *episodes)
    return steps._replace(next_action=following)


def in_unit(rewards: NDArray[Any], terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
    """[L, N] of variance one, which is what the learners' settings are for. From their mean on where no
    episode ended by itself: a constant of each step would only make values large."""
    level = 0.0 if terminated.any() else rewards.mean(axis=1, keepdims=True)
    spread = rewards.std(axis=1, keepdims=True)
    return np.asarray((rewards - level) / np.where(spread > 0, spread, 1.0), np.float32)


def learn_policy(
    backbone: Backbone,
    spec: Spec,
    steps: Transitions,
    rewards: NDArray[Any],
    seeds: Sequence[int],
    updates: int,
) -> tuple[State, Metrics]:
    """The states [L, ...] of a backbone after so many updates, each from a batch of the steps as it sees them
    and these rewards [L, N] (in any unit), and the means of the last 500 metrics. Lanes share the steps."""
    paid = in_unit(np.atleast_2d(rewards), np.asarray(steps.terminated))
    shared = jax.tree.map(jnp.asarray, steps)

    def one(key: PRNGKeyArray, rewards: Float[Array, "N"]) -> tuple[State, Metrics]:
        init_key, update_key = jax.random.split(key)

        def update(state: State, key: PRNGKeyArray) -> tuple[State, Metrics]:
            draw_key, own_key = jax.random.split(key)
            drawn = jax.random.randint(draw_key, (backbone.batch_size,), 0, len(rewards))
            batch = jax.tree.map(lambda x: x[drawn], shared)
            return backbone.update(state, batch, rewards[drawn], own_key)

        keys = jax.random.split(update_key, updates)
        state, metrics = jax.lax.scan(update, backbone.init(init_key, spec), keys)
        return state, {name: jnp.mean(each[-500:]) for name, each in metrics.items()}

    # A seed's children 0 and 1 are for the method's first state and for its updates.
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 2) for seed in seeds])
    return jax.jit(devices.over_lanes(one, len(seeds)))(keys, jnp.asarray(paid))
