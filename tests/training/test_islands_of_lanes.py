"""A lane is an island: where the losses of one are no numbers any more, it keeps its last sound agent, and
the others learn on."""

from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from apportion.backbones import sac
from apportion.core.config import UserError
from apportion.core.types import Batch, Method
from apportion.envs.factories import name_factory
from apportion.envs.faults import Faults
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS, transformer
from apportion.training import loop
from apportion.training.agent import AgentState
from apportion.training.settings import Config, Schedule
from apportion.training.updates import LOST, Islands, keep_if_finite
from faulty_envs import episode_seed

SCHEDULE = Schedule(
    120, 20, 1, warmup_steps=20, evaluate_every=60, replay_steps=200, evaluation_episodes=1, workers=0
)


def test_an_update_counts_only_where_a_lane_learns_and_its_losses_are_numbers() -> None:
    before, after = (AgentState(jnp.full(5, value), None, None, None) for value in (0.0, 1.0))
    metrics = {"critic_loss": jnp.array([2.0, jnp.nan, jnp.nan, jnp.inf, 2.0]), "value": jnp.ones(5)}
    learns = jnp.array([True, True, False, True, True])
    sound = jnp.array([True, True, True, True, False])
    agent, shown, sound = jax.vmap(keep_if_finite)(before, after, metrics, learns, sound)
    np.testing.assert_array_equal(agent.method, [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(sound, [True, False, True, False, False])
    np.testing.assert_array_equal(np.isfinite(shown["value"]), [True, False, False, False, False])


def test_the_host_hears_of_it_two_iterations_later_or_when_it_asks() -> None:
    faults = Faults(2, strict=False)
    islands = Islands(faults, 2)
    for iteration in range(5, 8):
        islands.updated(iteration, jnp.array([True, iteration < 5]))
    assert faults.frozen == {1: 5}
    assert islands.frozen(4).tolist() == [False, False]
    assert islands.learning(7, np.array([3, 3])).tolist() == [True, False]
    again = Islands(Faults(2, strict=False), 2)
    again.updated(5, jnp.array([False, True]))
    again.settle()
    assert again.faults.frozen == {0: 5}


def _breaking(config: Any) -> Method:
    """The oracle, but a reward of a million breaks it."""
    oracle = METHODS["observed"].make(METHODS["observed"].config())

    def update(state: Any, batch: Batch, key: Any) -> Any:
        state, metrics = oracle.update(state, batch, key)
        broken = jnp.max(batch.transitions.segment_total) > 1e5
        return state, metrics | {"reward_loss": jnp.where(broken, jnp.nan, 0.0)}

    return oracle._replace(update=update)


def _config(*seeds: int, strict: bool = False) -> Config:
    kwargs = f'{{"how": "pays", "seeds": {list(seeds)}}}'
    return Config(
        EnvConfig("faulty_envs:Faulty-v0", kwargs=kwargs),
        method="oracle",
        backbone_config=sac.Config(hidden=(4,), batch_size=64),
        schedule=replace(SCHEDULE, strict=strict),
        lanes=2,
        normalise=False,
    )


def _trained(config: Config) -> tuple[list[dict[str, Any]], loop.Saved]:
    with loop.open_pool(config) as pool:
        lines = []
        for snapshot in loop.online(config, pool):
            lines.append({name: np.asarray(values) for name, values in snapshot.metrics.items()})
            saved = jax.device_get(snapshot.save()) if snapshot.iteration == 5 else None
        assert saved is not None
        return lines, saved


def test_one_lane_breaks_and_the_other_learns_on_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "oracle", replace(METHODS["oracle"], make=_breaking))
    (calm, healthy), (lines, saved) = (_trained(_config(*seeds)) for seeds in ((), (episode_seed(1, 10),)))
    assert saved.faults["frozen"] == [(1, 2)]
    assert saved.faults["reasons"] == [None, LOST]
    for line, expected in zip(lines, calm, strict=True):
        for name in expected:
            np.testing.assert_array_equal(line[name][0], expected[name][0], err_msg=name)
    assert [bool(np.isnan(line["critic_loss"][1])) for line in lines] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    for leaf, sound in zip(jax.tree.leaves(saved.agent), jax.tree.leaves(healthy.agent), strict=True):
        np.testing.assert_array_equal(leaf[0], sound[0])
        assert np.isfinite(leaf[1]).all()
    with pytest.raises(UserError, match="its losses are no numbers"):
        _trained(_config(episode_seed(1, 10), strict=True))


class Uneven(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """Pays what is seen, for as many steps as the episode's seed says."""

    max_episode_steps = 40
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(8, 40))
        return self._seen(), {}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        self.left -= 1
        seen = self._seen()
        return seen, float(seen[0]), self.left == 0, False, {}

    def _seen(self) -> NDArray[np.float32]:
        return self.np_random.normal(size=2).astype(np.float32)


def test_a_lane_that_does_not_learn_yet_keeps_no_credit() -> None:
    """What it keeps of its steps does not depend on whether its neighbours learn already."""
    config = Config(
        EnvConfig(name_factory(Uneven)),
        method="transformer",
        method_config=transformer.Config(width=4, layers=1, segments=2, update_every=1),
        backbone_config=sac.Config(hidden=(4,), batch_size=8),
        lanes=4,
        schedule=Schedule(60, 20, 2, warmup_steps=0, replay_steps=200),
    )
    before, late = np.zeros(4, np.int64), 0
    with loop.open_pool(config) as pool:
        for snapshot in loop.online(config, pool):
            replay = snapshot.save().replay
            credit, segments = np.asarray(replay.credit), np.array(replay.segments)
            waits = before == 0  # units are measured when the first segments have come
            assert not credit[waits].any()
            late += int(np.sum(waits & (segments > 0) & (before.max() > 0)))
            before = segments
    assert late > 0, "no lane began later than another"
    assert np.all((credit != 0).any(axis=1) == (before > 0))
