"""A method that learns beside somebody else's trainer: finished episodes in, rewards of single steps out.

One lane with the replay, the units and the looks of our own trainer, and without a policy.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32
from numpy.typing import NDArray

from apportion import methods
from apportion.core.config import check, from_dict, to_dict
from apportion.core.registry import own
from apportion.core.spec import Spec
from apportion.core.types import Method, Metrics, Sampling, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.lane import LARGEST_REWARD
from apportion.envs.make import EnvConfig
from apportion.envs.messages import Arrays
from apportion.envs.spaces import not_finite
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.conformance import check_method
from apportion.training.offline import chunk_of
from apportion.training.revisions import looked_at_once, reached
from apportion.training.settings import Config, Schedule
from apportion.training.updates import key_from, watch_rewards

_INIT, _UPDATE, _DRAW, _WATCH = range(4)  # separate streams of randomness


# --- Episodes that somebody else's trainer plays: step by step until they end, then whole into the replay


class Unfinished:
    """The steps so far of an episode that goes on."""

    def __init__(self, max_steps: int) -> None:
        self.max_steps = max_steps
        self.forget()

    def step(
        self, observation: Any, action: Any, next_observation: Any, paid: float, info: dict[str, Any]
    ) -> None:
        """One step more. `segment_end` and `true_reward` are what DelayedReward says in its info."""
        before, after = np.array(observation, np.float32), np.array(next_observation, np.float32)
        for seen in (before, after):
            wrong = not_finite(seen)
            check(wrong is None, f"an observation of the environment has {wrong}")
        check(
            abs(paid) <= LARGEST_REWARD,
            f"a reward of the environment is {paid}: give finite numbers up to {LARGEST_REWARD:g}",
        )
        if self.steps and not np.array_equal(self.steps[-1]["observations"], before):
            self.forget()  # the environment was reset meanwhile: what the steps before earned is unknown
        check(
            len(self.steps) < self.max_steps,
            f"an episode has more than max_episode_steps={self.max_steps} steps: raise it",
        )
        if not self.steps:
            self.first = before
        step: Arrays = {
            "observations": after,
            "actions": np.array(action, np.float32),
            "paid": np.array(paid, np.float32),
            "true_rewards": np.array(info.get("true_reward", paid), np.float32),
            "segment_end": np.array(info.get("segment_end", False), np.bool_),
        }
        self.steps.append(step)

    def end(self, terminated: bool) -> Arrays:
        """The whole episode; from here on the next one. Its last step closes a segment."""
        episode = {name: np.stack([step[name] for step in self.steps]) for name in self.steps[0]}
        episode["observations"] = np.concatenate([self.first[None], episode["observations"]])
        episode["segment_end"][-1] = True
        self.forget()
        return episode | {"terminated": np.asarray(terminated)}

    def forget(self) -> None:
        """Begin anew: the episode was left before its end."""
        self.steps: list[Arrays] = []
        self.first = np.zeros(0, np.float32)  # observation


# --- The learner


class View(NamedTuple):
    """What a policy of our own trainer would see of an observation x: mask * (x - mean) * scale."""

    mean: NDArray[np.float32]  # [S]
    scale: NDArray[np.float32]  # [S]
    mask: NDArray[np.float32]  # [S]


class RewardLearner:
    """Any method, learning from whole episodes that others played."""

    def __init__(self, config: Config, spec: Spec) -> None:
        self.config, self.spec = config, spec
        if own(config.method):
            check_method(config.method, self.method, spec, batch_size=2)
        least = 2 * (spec.max_episode_steps + 1)
        size = config.schedule.replay_steps
        check(
            size >= least,
            f"a buffer of {size} steps cannot hold two episodes of {spec.max_episode_steps}: "
            f"raise its size to at least {least}",
        )
        self._compile()
        self.agent, self.replay = self._start()
        self.segments = 0  # closed so far
        self.updates = 0
        self.draws = 0

    @classmethod
    def of(
        cls,
        spec: Spec,
        method: str,
        settings: Mapping[str, Any],
        *,
        replay_steps: int,
        seed: int,
        normalise: bool,
    ) -> "RewardLearner":
        """By the method's name and those of its settings that differ from their defaults."""
        kind = methods.find(method).config
        chosen = from_dict(kind, {**to_dict(kind()), **settings}, "method.")
        schedule = Schedule(replay_steps=replay_steps, warmup_steps=0, steps_per_iteration=1)
        config = Config(
            EnvConfig(spec.env_id), method, chosen, schedule=schedule, seed=seed, normalise=normalise
        )
        return cls(config, spec)

    @cached_property
    def method(self) -> Method:
        return self.config.make_method()

    def add(self, episode: Arrays) -> None:
        """Store a finished episode; units are measured anew and the method looks again when that is due."""
        before = np.array([self.segments])
        places = 1 << (int(episode["segment_end"].sum()) - 1).bit_length()
        # Rows of the longest episode, so that one program serves all.
        chunk = chunk_of([episode], self.spec.max_episode_steps + 2, places)
        self.replay = self._insert(self.replay, jax.tree.map(lambda x: x[None], chunk))
        self.segments += int(chunk.segments)

        def due(first: float, growth: float) -> bool:
            return bool(reached(np.array([self.segments]), first, growth) > reached(before, first, growth))

        if self.config.normalise and due(scales.FIRST, scales.GROWTH):
            self.agent = self._measure(self.agent, self.replay)
        revision = self.method.revision
        if revision is not None and due(revision.first, revision.growth):
            records = replays.records(replays.of_lane(self.replay, 0), revision.max_rows)
            self.agent = looked_at_once(revision, self.agent, records, self.segments, 1)
        if self.method.memory is not None:
            self.agent = self._survey(self.agent, self.replay)

    def learn(self, count: int, batch_size: int) -> dict[str, float]:
        """So many updates of the method; what the last one measured."""
        first = self._origin(_UPDATE, self.updates)
        self.agent, credit, metrics = self._learn(batch_size, self.agent, self.replay, first, np.int32(count))
        self.replay = self.replay._replace(credit=credit)
        self.updates += count
        return {name: float(value) for name, value in jax.device_get(metrics).items()}

    def draw(self, batch_size: int) -> tuple[Transitions, NDArray[np.float32]]:
        """[B] steps of closed segments, drawn uniformly, on the host and in the environment's own units; and
        the method's rewards of now, brought to a usual size."""
        # The size of the rewards is looked at every hundred draws: an iteration of our own trainer.
        if self.config.normalise and self.draws % 100 == 0:
            origin = self._origin(_WATCH, self.draws)
            self.agent = self._watch(self.agent, self.replay, origin)
        origin = self._origin(_DRAW, self.draws)
        self.draws += 1
        return _first(jax.device_get(self._draw(batch_size)(self.agent, self.replay, origin)))

    def rewards(self, steps: Transitions) -> NDArray[np.float32]:
        """[B] what the method gives to steps in the environment's own units."""
        one = jax.tree.map(lambda x: np.asarray(x)[None], steps)
        return np.asarray(self._rewards(self.agent, one))[0]

    @property
    def view(self) -> View:
        """As it is now: mean and scale are 0 and 1 where units are left alone."""
        return View(*(part[0] for part in jax.device_get(self._view(self.agent))))

    # --- Saving: plain arrays and settings; programs are compiled again

    def __getstate__(self) -> dict[str, Any]:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.agent)]
        counters = {name: getattr(self, name) for name in ("segments", "updates", "draws")}
        return {
            "config": self.config.to_dict(),
            "spec": self.spec.to_dict(),
            "agent": leaves,
            "replay": replays.filled(self.replay),
            "counters": counters,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        RewardLearner.__init__(self, Config.from_dict(state["config"]), from_dict(Spec, state["spec"]))
        agent = jax.tree.unflatten(jax.tree.structure(self.agent), state["agent"])
        columns: dict[str, Any] = replays.unfilled(state["replay"], self.replay)
        replay = Replay(**columns)
        self.agent, self.replay = devices.spread((agent, replay), 1)
        for name, value in state["counters"].items():
            setattr(self, name, value)

    # --- Programs

    def _start(self) -> tuple[AgentState, Replay]:
        """[1, ...] as the loop has them: so that what it works with serves here too."""
        spec, scheduled = self.spec, self.config.schedule.replay_steps
        scaling = scales.unknown(spec) if self.config.normalise else None
        key = key_from(jnp.asarray(self._origin(_INIT, 0)[0]))
        agent = AgentState(self.method.init(key, spec), None, scaling)
        replay = replays.init(spec, replays.capacity_for(spec, scheduled, 1))
        alone: tuple[AgentState, Replay] = jax.tree.map(lambda x: x[None], (agent, replay))
        return devices.spread(alone, 1)  # where looks leave it too: a program serves one place only

    def _origin(self, stream: int, number: int) -> NDArray[np.uint32]:
        return np.array([(self.config.seed, stream, number)], np.uint32)

    def _compile(self) -> None:
        method, spec = self.method, self.spec

        def watch(agent: AgentState, replay: Replay, origin: UInt32[Array, "3"]) -> AgentState:
            return watch_rewards(method, agent, replay, key_from(origin))

        def view(agent: AgentState) -> tuple[Array, Array, Array]:
            units = scales.unknown(spec) if agent.scaling is None else agent.scaling
            return units.mean, units.scale, agents.policy_mask(method, spec.observation_size, agent.method)

        @lru_cache(maxsize=8)
        def draw(batch_size: int) -> Callable[..., Any]:
            return devices.compiled(partial(_draw, method, batch_size), 1)

        self._insert = devices.compiled(replays.insert, 1, donate=(0,))
        self._measure = devices.compiled(partial(agents.measured, method), 1)
        self._survey = devices.compiled(partial(agents.surveyed, method, spec), 1)
        self._watch = devices.compiled(watch, 1)
        self._rewards = devices.compiled(agents.in_own_units(method).reward, 1)
        self._view = devices.compiled(view, 1)
        self._learn = jax.jit(partial(_learn, method, spec), static_argnums=0, donate_argnums=1)
        self._draw = draw


def _learn(
    method: Method,
    spec: Spec,
    batch_size: int,
    agent: AgentState,
    replay: Replay,
    first: UInt32[Array, "1 3"],
    count: Int[Array, ""],
) -> tuple[AgentState, Float[Array, "1 N"], Metrics]:
    """Some updates of the method: the agent, what it gave to the steps of segments, and the last metrics.

    Not vmapped: a loop whose length differed from lane to lane would copy all that it carries at each turn.
    """
    sampling = dataclasses.replace(method.sampling.suited(spec.max_segment_steps), every=1)
    agent, replay, origin = _first((agent, replay, first))

    def update(agent: AgentState, credit: Array, key: PRNGKeyArray) -> tuple[AgentState, Array, Metrics]:
        draw_key, model_key = jax.random.split(key)
        now = replay._replace(credit=credit)
        drawn = _first(replays.draw(now, draw_key, sampling, batch_size, 1))
        raw = replays.gather(now, drawn, spec.max_segment_steps)
        agent, now, metrics = agents.learn(method, agent, now, raw, model_key)
        return agent, now.credit, metrics

    def turn(number: Array, state: Any) -> Any:
        agent, credit, _ = state
        return update(agent, credit, key_from(origin.at[2].add(number.astype(origin.dtype))))

    shapes = jax.eval_shape(update, agent, replay.credit, key_from(origin))[2]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    agent, credit, metrics = jax.lax.fori_loop(0, count, turn, (agent, replay.credit, nothing))
    agent, credit = jax.tree.map(lambda x: x[None], (agent, credit))
    return agent, credit, metrics


def _draw(
    method: Method, batch_size: int, agent: AgentState, replay: Replay, origin: UInt32[Array, "3"]
) -> tuple[Transitions, Float[Array, "B"]]:
    """Steps in the environment's units and the method's rewards of them; of the steps that a method recalls,
    as many as their share among all that our own backbone would get."""
    draw_key, recall_key, choose_key = jax.random.split(key_from(origin), 3)
    drawn = _first(replays.draw(replay, draw_key, Sampling(), batch_size, 1))
    steps = replays.gather(replay, drawn, 1).transitions
    if method.memory is not None and method.memory.recall is not None:
        recalled = method.memory.recall(agent.method, batch_size, recall_key)
        recalled = scales.own_transitions(agent.scaling, recalled)
        together = jax.tree.map(lambda *x: jnp.concatenate(x), steps, recalled)
        chosen = jax.random.permutation(choose_key, len(together.paid))[:batch_size]
        steps = jax.tree.map(lambda x: x[chosen], together)
    rewards = method.reward(agent.method, scales.transitions(agent.scaling, steps))
    return steps, scales.for_policy(agent.scaling, rewards)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)
