"""What the lanes of a run have learned: their agents in the newest checkpoint, or each at its best."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expand_actions, expand_observations, expanded
from apportion.core.config import Tell, UserError, check, silent
from apportion.core.spec import Spec
from apportion.core.types import Method, Record, State
from apportion.envs.acting import Actor
from apportion.envs.make import EnvConfig
from apportion.envs.messages import Arrays
from apportion.envs.spaces import learners_actions
from apportion.runs import checkpoint
from apportion.runs.contributions import RewardOf, compile_reward, why_not_alone
from apportion.runs.credit import INTERVAL, STEPS, as_rows, need_credit, read_credit
from apportion.runs.folder import RunFolder, on_age
from apportion.runs.logged import from_origins
from apportion.runs.settings import as_data, changes, read_settings
from apportion.training import agent as agents
from apportion.training.agent import AgentState
from apportion.training.offline import episode_arrays, with_last
from apportion.training.outcomes import Outcomes
from apportion.training.settings import Config
from apportion.training.uneven import padded_to, redistribute_in_groups

Rewards = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Learned:
    """The agents of all lanes, and what they were trained with."""

    config: Config
    spec: Spec  # as learners know it
    agent: AgentState  # [L, ...]
    step: int | None  # of the checkpoint; None where each lane has its own
    best_steps: list[int] | None  # [L] where these are the best agents
    skipped: list[str]  # a line for each newer checkpoint that could not be used, or is gone
    outcomes: Outcomes  # in which a fit to logged episodes was paid

    @cached_property
    def actors(self) -> Arrays:
        """[L, ...] what `envs.acting` acts with."""
        method, backbone = self.config.make_method(), self.config.make_backbone()
        states = self.spec.observation_size
        actors = jax.jit(jax.vmap(lambda agent: agents.actor(method, backbone, agent, states)))(self.agent)
        found = {name: np.asarray(array) for name, array in actors.items()}
        # Who acted in a log may have looked at anything: a policy that learned from it sees all.
        return found | ({"mask": np.ones_like(found["mask"])} if self.config.from_log else {})

    def actor(self, lane: int) -> tuple[Actor, str]:
        """What one lane acts with, and how."""
        actor = {name: array[lane] for name, array in self.actors.items()}
        return actor, self.config.make_backbone().head

    @property
    def method(self) -> Method:
        """As a function of `models`, in the environment's own units."""
        return self.outcomes.in_outcome_units(agents.in_own_units(self.config.make_method()))

    @property
    def models(self) -> State:
        """[L, ...] what the lanes' methods know."""
        return self.agent._replace(backbone=None)

    @cached_property
    def sound(self) -> list[int]:
        """Lanes whose numbers have stayed finite; UserError where there is none."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.models)]
        numbers = [leaf for leaf in leaves if leaf.dtype.kind == "f"]
        finite = [all(np.isfinite(leaf[lane]).all() for leaf in numbers) for lane in range(self.config.lanes)]
        check(any(finite), "what was learned is not finite in any seed: fit again, with other settings")
        return np.flatnonzero(finite).tolist()

    def left_out(self) -> list[str]:
        """A sentence for each lane that is not sound."""
        others = [self.config.seed + lane for lane in range(self.config.lanes) if lane not in self.sound]
        return [f"seed {seed} has no finite reward and is left out" for seed in others]

    def model(self, lane: int) -> State:
        """What one lane's method knows."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[lane]), self.models)

    def rewards(self, records: Sequence[Record], tell: Tell = silent) -> list[list[Rewards]]:
        """By lane and episode, what the method gives to steps [T]."""
        lengths = np.array([len(record.actions) for record in records], np.int64)
        longest = padded_to(self.spec, max(self.spec.max_episode_steps, int(lengths.max())))
        redistribute = redistribute_in_groups(self.method, longest, lengths, 5 * STEPS, tell)
        episodes = [episode_arrays(record) for record in records]
        return redistribute(self.models, [episodes] * self.config.lanes)

    def mean_rewards(self, records: Sequence[Record], tell: Tell = silent) -> list[NDArray[np.float64]]:
        """[T] of each episode, the mean over sound lanes."""
        lanes = self.rewards(records, tell)
        parts = zip(*(lanes[lane] for lane in self.sound), strict=True)
        return [np.asarray(np.mean(each, axis=0), np.float64) for each in parts]

    def moment(self) -> dict[str, Any]:
        """When that was, for JSON."""
        return {"step": self.step, "best_steps": self.best_steps}


def read_learned(run: RunFolder, best: bool = False) -> Learned:
    """From the newest checkpoint that can be read, or from the best agents that it knew of.

    Asked again, it is read again only if a file has changed.
    """
    return _read(run, best, _state_of_files(run))


@lru_cache(maxsize=4)  # agents of so many folders: a checkpoint with its replay takes long to read
def _read(run: RunFolder, best: bool, files: tuple[Any, ...]) -> Learned:
    config, checkpoints = read_settings(run)
    spec = expanded(run.read_spec())
    changes(run, checkpoint.trained_settings(run.checkpoints), as_data(config, checkpoints))
    moments = checkpoint.best_moments(run.checkpoints, config.lanes) if best else []
    if moments is None:
        raise UserError(
            f"{run.path} has kept no best policy (it was not evaluated and saved yet): take the newest one "
            "instead, without --best or best=True"
        )
    agent, loaded = checkpoint.read_agent(run.checkpoints, config, spec, best)
    notes = loaded.skipped or on_age(run, loaded.step)
    step, steps = (None, list(loaded.meta["best"]["steps"])) if best else (loaded.step, None)
    facts = run.read_data()
    outcomes = Outcomes() if facts is None else facts["outcomes"]
    return Learned(config, spec, agent, step, steps, notes, outcomes)


def _state_of_files(run: RunFolder) -> tuple[Any, ...]:
    """What changes when a file is written that agents are read from."""
    found = []
    for path in (run.config, run.spec, *run.checkpoints.glob("step_*")):
        with contextlib.suppress(FileNotFoundError):  # a training is just replacing it
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(sorted(found))


def check_lane(lane: int, lanes: int, run: RunFolder) -> None:
    check(0 <= lane < lanes, f"no lane {lane}: {run.path} has lanes 0 to {lanes - 1}")


# --- Asked about steps of one's own


def learned_rewards(
    run: RunFolder,
    observations: Any,
    actions: Any,
    lane: int = 0,
    best: bool = False,
    interval: float | None = None,
) -> tuple[Rewards, Rewards | None, Rewards | None]:
    """[T] of actions [T, A] in the environment's own range and observations [T, S] or [T+1, S], with the one
    after the last step; and the ends of an interval, where one is asked for."""
    check(interval is None or 0 < interval < 1, f"interval={interval} must be between 0 and 1")
    credit = read_credit(run) if interval is None else need_credit(run)
    learned = read_learned(run, best)
    check_lane(lane, learned.config.lanes, run)
    spec = run.read_spec()
    observations, actions = from_origins(run, observations, actions)
    taken = expand_actions(spec, learners_actions(spec, actions))
    seen = expand_observations(spec, _learners_observations(spec, learned.config.env, observations))
    check(
        len(seen) - len(taken) in (0, 1) and len(taken) > 0,
        f"{len(seen)} observations and {len(taken)} actions: give one observation for each action, "
        "and the last one, if it is known",
    )
    state, states, count = learned.model(lane), learned.spec.observation_size, len(taken)
    followed = len(seen) > count
    # Of a last step that leads nobody knows where, the next observation is NaN, or all are as they were.
    after = seen[1:] if followed else np.full_like(seen, np.nan)
    steps, still = (np.concatenate([seen[:count], taken, x], axis=1) for x in (after, seen[:count]))
    reason = why_not_alone(learned.config.method, learned.method, state, steps if followed else still, states)
    if reason is not None:
        raise UserError(f"{reason}: see what it gave to stored episodes, `redistributed` in Run.episodes()")
    reward_of = _compiled(learned.config, learned.outcomes, states)
    rewards = reward_of(state, steps)
    unknown = not followed and np.isnan(rewards).any() and not np.isnan(reward_of(state, still)).any()
    name = learned.config.method
    check(not unknown, f"{name} also looks at where a step leads: give observations [T+1, S]")
    if credit is None:
        return rewards, None, None
    rows = as_rows(seen[:count], taken, np.zeros((count, 1)), with_last(seen, count)[1:])
    found = credit.of_steps(rows, rewards)
    low, high = found.within(interval or INTERVAL)
    return found.reward.astype(np.float32), low.astype(np.float32), high.astype(np.float32)


@lru_cache(maxsize=8)
def _compiled(config: Config, outcomes: Outcomes, states: int) -> RewardOf:
    """Once for all who ask about rewards of the same settings."""
    return compile_reward(outcomes.in_outcome_units(agents.in_own_units(config.make_method())), states)


def _learners_observations(spec: Spec, env: EnvConfig, observations: Any) -> NDArray[np.float32]:
    """[T, S] as the method knows them: with the zeros that the paper's set-up adds."""
    own = np.asarray(observations, np.float32)
    size = spec.observation_size - spec.padded
    fits = own.ndim == 2 and own.shape[1] == size
    check(fits, f"observations have shape {own.shape}: give [T, {size}] or [T+1, {size}], one row per step")
    padded = np.pad(own, ((0, 0), (0, spec.padded)))
    if env.zero_from is not None:
        padded[:, env.zero_from :] = 0
    return padded
