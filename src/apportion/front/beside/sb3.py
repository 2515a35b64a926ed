"""Stable-Baselines3 and SBX: a replay buffer whose rewards a method of ours gives, and what a policy may see.

    SAC("MlpPolicy", env, replay_buffer_class=DecomposedReplayBuffer,
        replay_buffer_kwargs={"method": "grd", "max_episode_steps": 200})

Imported as `apportion.sb3`. SB3's own agent, networks and updates stay as they are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.envs.acting import standardise
from apportion.envs.spaces import spec_of
from apportion.training.learner import RewardLearner, Unfinished, View

try:
    from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize
except ImportError as error:
    raise UserError(f"apportion.sb3 needs an extra: pip install 'apportion[sb3]' ({error})") from error

_RAW_LAST = "apportion.terminal_observation"  # what SB3's own copy in an info has lost behind a mask


class DecomposedReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """Keeps whole episodes, lets a method learn from what each was paid, and gives its reward to every step.

    An episode's steps can be sampled once it has ended, and its reward is that of the method at that moment.
    Only what a method needs is stored, and only once: SB3's own arrays stay empty.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        max_episode_steps: int,
        method: str = "grd",
        settings: Mapping[str, Any] | None = None,
        updates_per_sample: int = 1,
        normalise: bool = True,
        seed: int | None = None,
        n_steps: int = 1,
    ) -> None:
        """`settings` are the method's, by name. SBX draws the batches of a whole round at once: there,
        `updates_per_sample` is its gradient_steps. Without a `seed`, that of SB3's model decides."""
        check(n_steps == 1, f"n_steps={n_steps}: rewards are given to single steps, so leave n_steps at 1")
        check(
            not optimize_memory_usage, "leave optimize_memory_usage off: observations are stored once anyway"
        )
        check(updates_per_sample >= 1, f"updates_per_sample={updates_per_sample} must be at least 1")
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.handle_timeout_termination = True  # SB3 asks
        self.optimize_memory_usage = False
        self.updates_per_sample = updates_per_sample
        spec = spec_of("the environment", observation_space, action_space, max_episode_steps)
        # SB3 has seeded NumPy with its model's seed by now.
        chosen = int(np.random.randint(2**31)) if seed is None else seed
        self.learner = RewardLearner.of(
            spec, method, settings or {}, replay_steps=buffer_size, seed=chosen, normalise=normalise
        )
        self.every = self.learner.method.sampling.suited(spec.max_segment_steps).every
        self.unfinished = [Unfinished(max_episode_steps) for _ in range(n_envs)]
        self.samples = 0
        self.metrics: dict[str, float] = {}  # of the method's last update

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """One step of each environment. A segment closes with its episode, or at an info's segment_end."""
        actions = self._learners_actions(np.asarray(action))
        for env, unfinished in enumerate(self.unfinished):
            after = infos[env].get(_RAW_LAST, next_obs[env])
            unfinished.step(obs[env], actions[env], after, reward[env], infos[env])
            if done[env]:
                self.learner.add(unfinished.end(not infos[env].get("TimeLimit.truncated", False)))

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Steps with the method's rewards, after it has learned some more."""
        if env is not None:
            check(not env.norm_reward, "VecNormalize scales the rewards: give it norm_reward=False")
        check(
            self.learner.segments > 0,
            "no episode has ended before the first update: raise learning_starts above the length of one "
            "episode in every environment",
        )
        if self.samples % self.every == 0:
            self.metrics = self.learner.learn(self.updates_per_sample, batch_size)
        self.samples += 1
        if isinstance(env, PolicyView):
            env.follow(self.learner.view)
        steps, rewards = self.learner.draw(batch_size)
        action = np.asarray(steps.action)
        if self.learner.spec.discrete:
            action = np.argmax(action, axis=1)[:, None] + self.learner.spec.first_action
        found = (
            self._normalize_obs(steps.observation, env),
            action,
            self._normalize_obs(steps.next_observation, env),
            steps.terminated.astype(np.float32)[:, None],
            rewards[:, None],
        )
        return ReplayBufferSamples(*map(self.to_torch, found))

    def size(self) -> int:
        """Steps that can be sampled, and those of episodes that go on."""
        replay = self.learner.replay
        capacity = replay.segment_first_step.shape[1]
        first = replay.segment_first_step[0, replay.oldest[0] % capacity]
        stored = int(replay.steps[0] - first) if self.learner.segments else 0
        return stored + sum(len(each.steps) for each in self.unfinished)

    def reset(self) -> None:
        """Forget the episodes and what was learned."""
        self.learner = RewardLearner(self.learner.config, self.learner.spec)
        self.unfinished = [Unfinished(each.max_steps) for each in self.unfinished]
        self.samples = 0

    def _learners_actions(self, action: NDArray[Any]) -> NDArray[Any]:
        """[n_envs, A]: SB3 has scaled continuous ones to [-1, 1] already."""
        spec = self.learner.spec
        if spec.discrete:
            return np.eye(spec.action_size, dtype=np.float32)[action.reshape(-1) - spec.first_action]
        return action.reshape(self.n_envs, -1)


class PolicyView(VecNormalize):  # type: ignore[misc]
    """Lets an SB3 policy see what one of ours would: standardised observations of the dimensions that the
    method's policy mask leaves, when acting, when learning and, with EvalCallback, when evaluating.

    Around the environment of a model with a DecomposedReplayBuffer, which keeps it up to date.
    """

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv, norm_obs=True, norm_reward=False)
        zeros = np.zeros(self.observation_space.shape, np.float32)
        self.follow(View(zeros, zeros + 1, zeros + 1))

    def follow(self, view: View) -> None:
        """See from now on what `view` says."""
        self.obs_rms = _Seen(view)

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.old_obs, self.old_reward = observations, rewards
        for info in infos:
            if "terminal_observation" in info:
                info[_RAW_LAST] = info["terminal_observation"]
                info["terminal_observation"] = self.normalize_obs(info[_RAW_LAST])
        return self.normalize_obs(observations), rewards, dones, infos

    def _normalize_obs(self, obs: Any, obs_rms: Any) -> Any:
        view = obs_rms.view
        return view.mask * standardise(obs, view.mean, view.scale)

    def _unnormalize_obs(self, obs: Any, obs_rms: Any) -> Any:
        return obs / obs_rms.view.scale + obs_rms.view.mean


class _Seen(RunningMeanStd):  # type: ignore[misc]
    """Stands where SB3 keeps its statistics, so that it copies them to evaluation environments."""

    def __init__(self, view: View) -> None:
        super().__init__(shape=view.mean.shape)
        self.view = view

    def update(self, arr: Any) -> None:
        """The buffer knows better."""
