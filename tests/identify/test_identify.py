"""The whole graph from logged episodes, and what is said when the data cannot tell."""

import json

import numpy as np
import pytest
from greenhouse_log import Log, collect, same

from apportion.envs.make import EnvConfig
from apportion.errors import UserError
from apportion.identify import identify
from apportion.identify.dynamics import DynamicsEvidence, dynamics_edges
from apportion.identify.features import Dictionary, Scale
from apportion.spec import Spec


@pytest.fixture(scope="module")
def greenhouse() -> tuple[Spec, Log]:
    return collect(EnvConfig("apportion/Greenhouse-v0"), 300)


def test_the_greenhouse_is_recovered_exactly(greenhouse: tuple[Spec, Log]) -> None:
    spec, log = greenhouse
    result = identify(*log)
    assert same(result.graph, spec.true_graph)
    assert result.certificate.reward
    assert result.explained > 0.99
    assert result.confidence.state_to_reward.min() > 0.9


@pytest.mark.parametrize("reward", ["linear", "nonlinear"])
@pytest.mark.parametrize("problem", [0, 1, 2])
def test_drawn_tasks_are_recovered_exactly(reward: str, problem: int) -> None:
    kwargs = json.dumps({"problem": problem, "reward": reward, "state_size": 10, "action_size": 3, "dead": 1})
    spec, log = collect(EnvConfig("apportion/Factored-v0", kwargs=kwargs), 400)
    assert same(identify(*log).graph, spec.true_graph)


def test_units_do_not_change_the_graph(greenhouse: tuple[Spec, Log]) -> None:
    spec, (observations, actions, totals) = greenhouse
    units = np.logspace(-6, 6, spec.observation_size)
    result = identify([o.astype(np.float64) * units for o in observations], actions, 1e5 * totals)
    assert same(result.graph, spec.true_graph)


def test_correlated_sources_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(5000, 1))
    x = 0.45 * rng.normal(size=(5000, 5)) + 0.9 * common  # correlation 0.8 between any two
    following = np.stack([0.9 * x[:, 0] + 0.2 * x[:, 3], np.tanh(x[:, 1]), x[:, 2] * x[:, 4]], axis=1)
    following += 0.1 * rng.normal(size=following.shape)
    evidence = DynamicsEvidence(Dictionary.over(Scale.fit(x)), Scale.fit(following))
    evidence.add(x, following)
    parents = [np.flatnonzero(column).tolist() for column in dynamics_edges(evidence).edges.T]
    assert parents == [[0, 3], [1], [2, 4]]


def test_few_segments_are_not_certified(greenhouse: tuple[Spec, Log]) -> None:
    _, (observations, actions, totals) = greenhouse
    certificate = identify(observations[:40], actions[:40], totals[:40]).certificate
    assert not certificate.reward
    assert "40 segments are few" in certificate.notes[0]


def test_totals_that_nothing_explains_are_not_certified(greenhouse: tuple[Spec, Log]) -> None:
    _, (observations, actions, totals) = greenhouse
    noise = np.random.default_rng(0).normal(size=len(totals))
    assert not identify(observations, actions, noise).certificate.reward


def test_a_missing_parent_is_noticed() -> None:
    """With few episodes an action that moves the only parent is taken for it: the rest explains far more."""
    kwargs = json.dumps({"problem": 2, "state_size": 10, "action_size": 3, "dead": 1})
    spec, log = collect(EnvConfig("apportion/Factored-v0", kwargs=kwargs), 150)
    result = identify(*log)
    assert not same(result.graph, spec.true_graph)
    assert not result.certificate.reward
    assert "some parent is missing" in result.certificate.notes[0]


def test_bad_data_is_refused(greenhouse: tuple[Spec, Log]) -> None:
    _, (observations, actions, totals) = greenhouse
    broken = totals.copy()
    broken[3] = np.nan
    with pytest.raises(UserError, match="NaN"):
        identify(observations, actions, broken)
    with pytest.raises(UserError, match="one total per segment"):
        identify(observations, actions, totals[:-1])
