"""Imagined steps: through a model that is known, beside a plain loop; and what they leave alone."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import BACKBONES
from apportion.core.config import UserError
from apportion.core.types import Backbone, Dynamics, Imagined, Method, Record, Sampling, Transitions
from apportion.data import replay as replays
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS, grd
from apportion.training import agent as agents
from apportion.training import scaling as scales
from apportion.training.agent import AgentState, Imagination
from apportion.training.conformance import check_method
from apportion.training.offline import fill
from apportion.training.scaling import Limit
from apportion.training.settings import Config, Imagine, Schedule
from apportion.training.updates import updates, with_imagined
from builders import BUTTONS, SPEC, assert_equal, transitions

GREENHOUSE = EnvConfig("apportion/Greenhouse-v0")
MOVES = np.array([[0.9, 0.2, 0.0], [0.0, 0.8, 0.1], [0.3, 0.0, 0.7]], np.float32)
PUSHES = np.array([[0.5, 0.0, -0.5], [0.0, 0.6, 0.4]], np.float32)
WEIGHTS = np.array([[0.4, -0.2], [0.1, 0.7], [9.0, 9.0]], np.float32)  # of the policy; it sees two of three
ENDS_ABOVE = 0.3
PAUSE = Limit(SPEC.max_episode_steps, "pause")
REAL = transitions(5, 10)
ROWS = jax.device_get((REAL.observation, REAL.action))
EPISODES = [Record(ROWS[0][n : n + 4], ROWS[1][n : n + 3], 1.0 + n / 4, False, n) for n in (0, 4)]


def _linear() -> Method:
    """s' = M s + P a, which ends where the first number is high."""

    def imagine(
        state: Any, method: Any, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> Imagined:
        after = observation @ jnp.asarray(MOVES) + action @ jnp.asarray(PUSHES)
        return Imagined(after, after[:, 0] > ENDS_ABOVE)

    return Method(
        init=lambda key, spec: jnp.zeros(()),
        update=lambda state, batch, key: (state, {}),
        reward=lambda state, steps: steps.action[:, 0],
        policy_mask=lambda state: jnp.asarray([1.0, 1.0, 0.0]),
        sampling=Sampling(),
        dynamics=Dynamics(lambda key, spec: jnp.zeros(()), lambda own, method, steps: (own, {}), imagine),
    )


def _backbone() -> Backbone:
    return Backbone(
        init=lambda key, spec: jnp.zeros(()),
        update=lambda state, steps, rewards, key: (state, {}),
        act=lambda state, observation, key, explore: jnp.tanh(observation @ jnp.asarray(WEIGHTS)),
        actor=lambda state: {},
        head="tanh_noise",
        batch_size=10,
    )


def _agent(updates: int = 7) -> AgentState:
    nothing = jnp.zeros(())
    return AgentState(nothing, nothing, None, imagination=Imagination(nothing, jnp.asarray(updates)))


def _mixed(imagine: Imagine, updates: int = 7) -> tuple[Transitions, float]:
    steps, share = with_imagined(imagine, _linear(), _backbone(), _agent(updates), REAL, jax.random.key(0))
    return steps, float(share)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_imagined_steps_are_those_of_a_plain_loop_and_other_steps_stay_real(share: float) -> None:
    steps, found_share = _mixed(Imagine(share=share, after=7))
    for row in range(10):
        if row >= round(share * 10):
            assert_equal(*(jax.tree.map(lambda x, r=row: x[r], part) for part in (steps, REAL)))
            continue
        at = np.asarray(REAL.observation[row])
        action = np.tanh(at * [1, 1, 0] @ WEIGHTS)
        after = at @ MOVES + action @ PUSHES
        np.testing.assert_allclose(steps.action[row], action, rtol=1e-5)
        np.testing.assert_allclose(steps.next_observation[row], after, rtol=1e-5)
        assert bool(steps.terminated[row]) == bool(after[0] > ENDS_ABOVE)
        assert float(steps.true_reward[row]) == 0  # nobody knows it
    assert found_share == share


def test_nothing_is_imagined_before_the_model_has_learned() -> None:
    steps, share = _mixed(Imagine(share=0.5, after=8), updates=7)
    assert_equal(steps, REAL)
    assert share == 0


# --- In a training


def _config(imagine: Imagine, backbone: str = "sac", **changes: Any) -> Config:
    entry = BACKBONES[backbone]
    return Config(
        GREENHOUSE,
        method_config=grd.Config(hidden=(8,), segments=2, update_every=2, **changes),
        backbone=backbone,
        backbone_config=replace(entry.config(), hidden=(8,), batch_size=6),
        schedule=Schedule(updates_per_iteration=4),
        imagine=imagine,
    )


def _one_iteration(config: Config) -> tuple[AgentState, replays.Replay, Any]:
    """From a fresh state and a replay of two episodes; `normalise` is on."""
    method, backbone = config.make_method(), config.make_backbone()
    spec = BUTTONS if backbone.discrete else SPEC
    init_key, key = jax.random.split(jax.random.key(0))
    agent = agents.init(method, backbone, init_key, spec, scales.unknown(spec), config.imagines)
    return updates(config, spec, agent, fill(SPEC, EPISODES), jnp.asarray(0), key)


def test_a_training_is_bit_for_bit_the_same_until_steps_are_imagined() -> None:
    without, _, plain = jax.jit(lambda: _one_iteration(_config(Imagine(), "ddpg")))()
    later = _config(Imagine(share=0.5, after=5), "ddpg")
    waiting, _, metrics = jax.jit(lambda: _one_iteration(later))()
    assert without.imagination is None
    assert waiting.imagination is not None
    assert int(waiting.imagination.updates) == 4
    assert_equal(waiting._replace(imagination=None), without)
    assert_equal({name: metrics[name] for name in plain}, plain)
    assert metrics.keys() - plain.keys() == {"model_loss", "model_end_loss", "imagined_share"}
    assert metrics["imagined_share"] == 0


def test_a_model_of_the_users_own_is_held_against_its_contract() -> None:
    method = _linear()
    assert method.dynamics is not None
    check_method("mine:make", method, SPEC, batch_size=4)
    whole = method.dynamics._replace(
        imagine=lambda own, method, observation, action, key: Imagined(observation, jnp.zeros((), bool))
    )
    line = r"--method mine:make: dynamics.imagine.terminated has shape \(\): \(4,\) is needed"
    with pytest.raises(UserError, match=line):
        check_method("mine:make", method._replace(dynamics=whole), SPEC, batch_size=4)


# --- Settings


@pytest.mark.parametrize("name", [name for name in METHODS if name != "grd"])
def test_a_method_without_a_model_refuses_and_says_who_has_one(name: str) -> None:
    line = f"{name} has no model to imagine steps with: leave out --imagine.share, or add --method grd$"
    with pytest.raises(UserError, match=line):
        Config(GREENHOUSE, method=name, imagine=Imagine(share=0.5))


def test_a_policy_that_learns_only_from_its_own_newest_steps_refuses() -> None:
    with pytest.raises(UserError, match="ppo learns only from the steps that it has just taken: leave out"):
        Config(GREENHOUSE, backbone="ppo", imagine=Imagine(share=0.5))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"share": 1.5}, "imagine.share=1.5 must be from 0 to 1"),
        ({"after": -1}, "imagine.after=-1 must not be negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        Imagine(**settings)


def test_it_is_written_down_with_the_run() -> None:
    config = Config(GREENHOUSE, imagine=Imagine(share=0.5))
    assert Config.from_dict(config.to_dict()) == config
