"""Tiny tasks with a known optimum: actors find the best action, and critics the analytic values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import BACKBONES, actor_critic, crossq, flashsac
from apportion.nn.networks import NormedMLP
from builders import normal
from probes import BEST_ACTION, PLACES, bandit, chain, chain_values, train

BLOCKS = {"hidden": (16,), "critic_hidden": (16,), "learning_rate": 3e-3}
LAYERS = {"hidden": (16, 16), "learning_rate": 5e-3}
RENORM = {**LAYERS, "critic_hidden": (16, 16), "statistics_rate": 0.05}
COLD = {"batch_size": 60, "discount": 0.6, "initial_temperature": 1e-6}  # or entropy adds to every value

BANDIT: dict[str, tuple[dict[str, Any], int]] = {
    "sac": ({**LAYERS, "initial_temperature": 0.1, "target_entropy": -2.0}, 600),
    "simba": ({**BLOCKS, "polyak": 0.05, "target_entropy": -2.0}, 600),
    "crossq": ({**RENORM, "initial_temperature": 0.1, "target_entropy": -2.0}, 900),
    "flashsac": (BLOCKS, 1500),
    "td3": (LAYERS, 600),
    "ddpg": (LAYERS, 600),
}
CHAIN: dict[str, tuple[str, dict[str, Any], int]] = {
    "sac": ("sac", {**LAYERS, **COLD, "polyak": 0.05}, 600),
    "sac-with-norm": ("sac", {**LAYERS, **COLD, "polyak": 0.05, "critic_norm": True}, 600),
    "simba": ("simba", {**BLOCKS, **COLD, "polyak": 0.05}, 600),
    "crossq": ("crossq", {**RENORM, **COLD}, 600),  # without a target network to hold its critics
    "flashsac": ("flashsac", {**BLOCKS, **COLD, "polyak": 0.05}, 800),
    "td3": ("td3", {**LAYERS, "batch_size": 60, "discount": 0.6, "polyak": 0.1}, 600),
    "ddpg": ("ddpg", {**LAYERS, "batch_size": 60, "discount": 0.6, "polyak": 0.05}, 600),
}
NORMED = ("crossq", "flashsac")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NORMED]


def _quick(names: Any) -> list[Any]:
    return [name for name in names if name not in NORMED] + SLOW


@pytest.mark.parametrize("name", _quick(BANDIT))
def test_the_policy_finds_the_best_action_of_a_bandit(name: str) -> None:
    settings, updates = BANDIT[name]
    backbone = BACKBONES[name].make(BACKBONES[name].config(**settings, batch_size=64))
    steps = bandit()
    if name in NORMED:  # wherever it stands: a batch of equal observations would be normalised to nothing
        steps = steps._replace(observation=normal(np.random.default_rng(0), 512, 1))
    state = train(backbone, steps, updates)
    for place in PLACES if name in NORMED else jnp.ones((1, 1)):
        found = backbone.act(state, place, jax.random.key(0), False)
        np.testing.assert_allclose(found, [BEST_ACTION], atol=0.1)


@pytest.mark.parametrize("variant", _quick(CHAIN))
def test_critics_learn_analytic_values(variant: str) -> None:
    name, settings, updates = CHAIN[variant]
    state = train(BACKBONES[name].make(BACKBONES[name].config(**settings)), chain(), updates)
    assert isinstance(state.critics, NormedMLP) == (variant == "sac-with-norm")
    actions = jnp.asarray([[0.5], [-0.5], [0.0]])
    if name in NORMED:
        judging: Any = {"crossq": crossq, "flashsac": flashsac}[name].judging
        found = judging(state.critics, state.critic_statistics, PLACES, actions)
    else:
        found = actor_critic.values(state.critics, PLACES, actions)
    tolerance = 0.15 if name == "flashsac" else 0.1
    np.testing.assert_allclose(found, [chain_values(0.6)] * len(found), atol=tolerance)
