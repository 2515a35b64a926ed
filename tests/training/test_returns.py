"""The unit of returns is measured in the replay, by the rewards that the model gives at that moment."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import BACKBONES, flashsac
from apportion.core.config import UserError
from apportion.core.types import Method, Returns
from apportion.data import replay as replays
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training import scaling
from apportion.training.agent import AgentState
from apportion.training.offline import chunk_of
from apportion.training.settings import Config, Schedule
from apportion.training.updates import watch_returns
from builders import SPEC

WANTED = Returns(0.9, 5.0)
ORACLE = METHODS["oracle"].make(METHODS["oracle"].config())


def _filled(rewards: list[np.ndarray], windows: bool) -> replays.Replay:
    """Episodes with these rewards, each one segment, or one for every step."""
    replay = replays.init(SPEC, 24)
    for each in rewards:
        steps = len(each)
        ends = np.ones(steps, bool) if windows else np.arange(steps) == steps - 1
        states, actions = np.zeros((steps + 1, 3), np.float32), np.zeros((steps, 2), np.float32)
        columns = {"paid": each, "true_rewards": each, "segment_end": ends, "terminated": np.asarray(False)}
        episode = {"observations": states, "actions": actions, **columns}
        chunk = chunk_of([episode], SPEC.max_episode_steps + 2, 8)
        replay = replays.insert(replay, jax.tree.map(jnp.asarray, chunk))
    return replay


def _measured(replay: replays.Replay, method: Method = ORACLE) -> scaling.Scaling:
    state = AgentState(method.init(jax.random.key(0), SPEC), None, scaling.unknown(SPEC, returns=True))
    found = watch_returns(method, WANTED, state, replay, jax.random.key(1))
    assert found.scaling is not None
    return found.scaling


@pytest.mark.parametrize("windows", [False, True])
def test_returns_are_those_of_whole_episodes_however_they_were_paid(windows: bool) -> None:
    """The last of them decides here: all steps of it are among the newest."""
    rng = np.random.default_rng(0)
    rewards = [rng.normal(size=6).astype(np.float32) for _ in range(6)]  # more than the replay holds
    rewards[-1][-1] = 40
    so_far = 0.0
    for reward in rewards[-1]:
        so_far = reward + 0.9 * so_far
    replay = _filled(rewards, windows)
    found = _measured(replay)
    np.testing.assert_allclose(found.returns.largest, so_far / 5, rtol=1e-4)

    def doubled(state: Any, steps: Any) -> Any:
        return 2 * ORACLE.reward(state, steps)

    other = scaling.reward_factor(_measured(replay, ORACLE._replace(reward=doubled)))
    np.testing.assert_allclose(other, scaling.reward_factor(found) / 2, rtol=1e-5)


def test_one_short_episode_is_enough() -> None:
    """Its returns are 1 and 1.9, whose spread is 0.45."""
    found = _measured(_filled([np.array([1, 1], np.float32)], windows=False))
    np.testing.assert_allclose(scaling.reward_factor(found), 1 / 0.45, rtol=1e-4)


def test_a_backbone_that_asks_for_it_cannot_have_rewards_as_they_come() -> None:
    with pytest.raises(UserError, match="flashsac needs rewards in its own unit: leave out --no-normalise"):
        Config(EnvConfig("Pendulum-v1"), backbone="flashsac", normalise=False)


def test_the_learning_rate_falls_over_all_updates_of_the_schedule() -> None:
    schedule = Schedule(steps=1_050, steps_per_iteration=100, updates_per_iteration=7, warmup_steps=300)
    assert schedule.updates == 9 * 7  # eleven iterations, of which two end in the warm-up
    config = Config(EnvConfig("Pendulum-v1"), backbone="flashsac", schedule=schedule)
    made: list[flashsac.Config] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apportion.backbones.BACKBONES", {"flashsac": _noting(made)})
        config.make_backbone()
    assert [each.decay_updates for each in made] == [63]
    assert config.backbone_config.decay_updates is None  # what was asked for stays


def _noting(made: list[flashsac.Config]) -> Any:
    """The registry's entry, which notes the settings that it is made with."""

    def make(config: flashsac.Config) -> Any:
        made.append(config)
        return flashsac.make(config)

    return replace(BACKBONES["flashsac"], make=make)
