"""Stable-Baselines3 and SBX with our replay buffer: what is stored, what is given, what is refused."""

from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from apportion.sb3 import DecomposedReplayBuffer, PolicyView
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize, sync_envs_normalization

from apportion.core.config import UserError
from apportion.data import replay as replays
from apportion.envs.delayed import DelayedReward
from apportion.training.learner import View

pytestmark = pytest.mark.slow

STEPS = 5


class Track(gymnasium.Env[Any, Any]):
    """Pays for the first of three numbers, which it draws anew at each step; ends after 3 or 5 steps in turn.
    An episode of 3 steps is a true end, one of 5 was cut."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, first_short: bool = False) -> None:
        self.short = not first_short

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.short, self.steps = not self.short, 0
        self.seen = self.np_random.normal(size=3).astype(np.float32)
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.steps = float(self.seen[0]), self.steps + 1
        self.seen = self.np_random.normal(size=3).astype(np.float32)
        return self.seen, reward, self.short and self.steps == 3, self.steps == STEPS, {}


class Buttons(Track):
    """The same with a choice of three, counted from 0."""

    action_space = gymnasium.spaces.Discrete(3)


def tracks(kind: type[Track] = Track) -> DummyVecEnv:
    return DummyVecEnv([lambda: DelayedReward(kind()), lambda: DelayedReward(kind(first_short=True))])


def model(env: Any, method: str = "rd", kind: Any = SAC, **more: Any) -> Any:
    sizes = {} if method in ("observed", "oracle", "ircr") else {"hidden": (8,), "learning_rate": 1e-2}
    buffer = {"method": method, "max_episode_steps": STEPS, "settings": sizes}
    return kind(
        "MlpPolicy",
        env,
        learning_starts=20,
        batch_size=16,
        buffer_size=200,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=DecomposedReplayBuffer,
        replay_buffer_kwargs=buffer | more,
        seed=0,
        device="cpu",
    )


@pytest.fixture(scope="module")
def trained() -> Any:
    """SAC whose method has seen some fifty episodes of two environments."""
    return model(tracks()).learn(220)


def test_what_an_episode_paid_becomes_a_reward_of_its_steps_and_ends_of_time_are_no_ends(
    trained: Any,
) -> None:
    """Not exactly after so little: that the first number pays must show."""
    trained.replay_buffer.learner.learn(1500, 16)
    found = trained.replay_buffer.sample(256)
    assert np.corrcoef(found.observations[:, 0], found.rewards[:, 0])[0, 1] > 0.9
    stored = replays.records(replays.of_lane(trained.replay_buffer.learner.replay, 0), 10_000)
    assert {(len(record.actions), record.terminated) for record in stored} == {(3, True), (5, False)}
    assert trained.replay_buffer.size() <= 200 + 2 * STEPS


def test_a_saved_buffer_goes_on_as_if_it_had_stayed(trained: Any, tmp_path: Path) -> None:
    trained.save_replay_buffer(tmp_path / "buffer.pkl")
    twin = model(tracks())
    twin.load_replay_buffer(tmp_path / "buffer.pkl")
    one, other = (each.replay_buffer.sample(16) for each in (trained, twin))
    assert all(np.array_equal(a, b) for a, b in zip(one[:5], other[:5], strict=True))
    assert (tmp_path / "buffer.pkl").stat().st_size < 100_000
    twin.learn(24)  # from a new episode: what was left open is forgotten


@pytest.mark.parametrize("method", ["ircr", "oracle"])
def test_other_methods_serve_too(method: str) -> None:
    learned = model(tracks(), method).learn(24)
    found = learned.replay_buffer.sample(16)
    assert found.rewards.shape == (16, 1)
    if method == "oracle":
        assert np.allclose(found.rewards[:, 0], found.observations[:, 0])


def test_discrete_actions_come_back_as_numbers() -> None:
    learned = model(tracks(Buttons), "observed", DQN).learn(24)
    assert set(learned.replay_buffer.sample(64).actions.flatten().tolist()) == {0, 1, 2}


def test_a_view_shows_the_policy_what_ours_would_see(trained: Any) -> None:
    env = PolicyView(tracks())
    view = trained.replay_buffer.learner.view
    env.follow(View(view.mean, view.scale, np.array([1, 0, 1], np.float32)))
    seen, own = env.reset(), env.get_original_obs()
    assert (seen[:, 1] == 0).all()
    assert np.allclose(seen[:, 0], (own[:, 0] - view.mean[0]) * view.scale[0], atol=1e-5)
    judge = PolicyView(tracks())
    sync_envs_normalization(env, judge)
    assert (judge.normalize_obs(own)[:, 1] == 0).all()


def test_behind_a_mask_the_method_still_sees_everything() -> None:
    env = PolicyView(tracks())
    learned = model(env)
    env.follow(View(np.zeros(3), np.ones(3), np.zeros(3)))
    learned.learn(24)
    stored = learned.replay_buffer.learner.replay
    assert (np.asarray(stored.observation[0, : int(stored.rows[0])]) != 0).all()
    assert env.obs_rms.view.mask.all(), "from the first update on, the view is the method's"


def test_the_model_s_seed_decides() -> None:
    first, again = (model(tracks()).replay_buffer.learner for _ in range(2))
    assert first.config.seed == again.config.seed


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"n_steps": 3}, "leave n_steps at 1"),
        ({"method": "rdd"}, "unknown method 'rdd' (did you mean"),
        ({"settings": {"hiden": (8,)}}, "unknown setting method.hiden (did you mean 'hidden'?)"),
        ({"max_episode_steps": 150}, "raise its size to at least 302"),
    ],
)
def test_what_cannot_work_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as refusal:
        model(tracks(), **more)
    assert reason in str(refusal.value)


def test_what_cannot_work_is_refused_when_it_shows() -> None:
    """Scaled rewards, an update before the first end of an episode, an episode that is too long."""
    with pytest.raises(UserError, match="norm_reward=False"):
        model(VecNormalize(tracks())).learn(24)
    model(VecNormalize(tracks(), norm_reward=False), "observed").learn(24)
    early = model(tracks())
    early.learning_starts = 2
    with pytest.raises(UserError, match="raise learning_starts"):
        early.learn(10)
    with pytest.raises(UserError, match="max_episode_steps=4"):
        model(tracks(), max_episode_steps=4).learn(24)


def test_sbx_learns_from_the_same_buffer() -> None:
    sbx = pytest.importorskip("sbx")
    learned = model(tracks(), kind=sbx.SAC, updates_per_sample=2)
    learned.gradient_steps = 2
    # SBX is not written for the strictness of our tests.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        learned.learn(30)
    assert learned.replay_buffer.learner.updates >= 2 * 4
    assert np.isfinite(learned.replay_buffer.metrics["reward_loss"])
