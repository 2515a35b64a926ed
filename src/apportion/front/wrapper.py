"""A Gymnasium wrapper that gives a learned reward inside `step`: for on-policy and CleanRL-style trainers."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from apportion.core.config import UserError, check
from apportion.core.types import single_steps
from apportion.envs.make import time_limit
from apportion.envs.spaces import learners_actions, spec_of
from apportion.runs.contributions import why_not_alone
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training.learner import RewardLearner, Unfinished


class RewardModelWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Pays what a method makes of late payments, and lets the method learn from every finished episode.

    Until `first_episodes` have ended the environment's own payments are passed on. Put it outside of any time
    limit. What the environment paid is `paid` in each step's info.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        method: str = "grd",
        *,
        settings: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        first_episodes: int = 10,
        updates_per_step: float = 1.0,
        batch_size: int = 256,
        replay_steps: int = 1_000_000,
        normalise: bool = True,
        seed: int = 0,
    ) -> None:
        """`settings` are the method's, by name. For each step of an ended episode it makes `updates_per_step`
        updates. `max_episode_steps` is needed where the environment does not say."""
        given = {name: value for name, value in locals().items() if name not in ("self", "env", "__class__")}
        RecordConstructorArgs.__init__(self, **given)
        super().__init__(env)
        check(first_episodes >= 1, f"first_episodes={first_episodes} must be at least 1")
        check(updates_per_step > 0, f"updates_per_step={updates_per_step} must be positive")
        limit = time_limit(env) if max_episode_steps is None else max_episode_steps
        if limit is None:
            raise UserError("the environment does not say how long its episodes are: give max_episode_steps")
        spec = spec_of("the environment", env.observation_space, env.action_space, limit)
        self.learner = RewardLearner.of(
            spec, method, settings or {}, replay_steps=replay_steps, seed=seed, normalise=normalise
        )
        self._check_judges_steps(method)
        self.first_episodes = first_episodes
        self.updates_per_step = updates_per_step
        self.batch_size = batch_size
        self.episodes = 0
        self._unfinished = Unfinished(limit)
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        observation, info = super().reset(seed=seed, options=options)
        self._unfinished.forget()
        self._observation = np.array(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        after, paid, terminated, truncated, info = super().step(action)
        # A copy: some environments write each observation into the same array.
        before, self._observation = self._observation, np.array(after)
        # Beyond its bounds an environment takes the bound, if it takes anything: learners know no more.
        taken = np.clip(learners_actions(self.learner.spec, np.asarray(action)[None])[0], -1, 1)
        reward = float(paid)
        self._unfinished.step(before, taken, after, reward, info)
        learned = self.episodes >= self.first_episodes
        given = self._reward(before, taken, after, bool(terminated)) if learned else reward
        if terminated or truncated:
            episode = self._unfinished.end(bool(terminated))
            self.learner.add(episode)
            self.episodes += 1
            updates = max(1, round(self.updates_per_step * len(episode["paid"])))
            self.learner.learn(updates, self.batch_size)
        return after, given, terminated, truncated, {**info, "paid": reward}

    def _reward(self, before: Any, action: Any, after: Any, terminated: bool) -> float:
        seen, reached = (np.asarray(each, np.float32)[None] for each in (before, after))
        step = single_steps(seen, action[None], reached, np.array([terminated]))
        return float(self.learner.rewards(step)[0])

    def _check_judges_steps(self, method: str) -> None:
        """Complain of a method that needs the whole segment: its end is not known inside `step`."""
        spec = self.learner.spec
        state = devices.one_lane(self.learner.agent, 0)
        step = np.zeros((1, 2 * spec.observation_size + spec.action_size), np.float32)
        own = agents.in_own_units(self.learner.method)
        reason = why_not_alone(method, own, state, step, spec.observation_size)
        if reason is not None:
            raise UserError(f"{reason}: inside step() use grd, rd or rrd")
