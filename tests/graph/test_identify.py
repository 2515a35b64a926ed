"""The whole graph from logged episodes, and what is said when the data cannot tell."""

import json

import numpy as np
import pytest
from greenhouse_log import Log, collect, same

from apportion.core.config import UserError
from apportion.core.spec import BLOCKS, REWARD_BLOCKS, Spec
from apportion.envs.make import EnvConfig
from apportion.graph import identify
from apportion.graph.certificate import certify
from apportion.graph.features import Scale
from apportion.graph.refine import refine
from apportion.graph.segments import Segments


@pytest.fixture(scope="module")
def greenhouse() -> tuple[Spec, Log]:
    return collect(EnvConfig("apportion/Greenhouse-v0"), 300)


def test_the_greenhouse_is_recovered_exactly(greenhouse: tuple[Spec, Log]) -> None:
    spec, log = greenhouse
    result = identify(*log)
    assert same(result.graph, spec.true_graph)
    assert result.certificate.reward
    assert result.explained > 0.99
    assert result.verdict.state_to_reward.tolist() == ["present"] * 5 + ["absent"] * 5
    assert result.verdict.action_to_reward.tolist() == ["present", "absent", "absent"]
    assert all(np.min(getattr(result.confidence, name)) > 0.95 for name in REWARD_BLOCKS)
    assert result.groups == []


@pytest.mark.parametrize("reward", ["linear", "nonlinear"])
@pytest.mark.parametrize("problem", [0, 1, 2])
def test_drawn_tasks_are_recovered_exactly(reward: str, problem: int) -> None:
    kwargs = json.dumps({"problem": problem, "reward": reward, "state_size": 10, "action_size": 3, "dead": 1})
    spec, log = collect(EnvConfig("apportion/Factored-v0", kwargs=kwargs), 400)
    assert same(identify(*log).graph, spec.true_graph)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_the_number_of_threads(
    threads: int, greenhouse: tuple[Spec, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = identify(*greenhouse[1])
    monkeypatch.setattr("apportion.graph.dictionary.THREADS", threads)
    monkeypatch.setattr("apportion.graph.dynamics.THREADS", threads)
    other = identify(*greenhouse[1])
    for block in BLOCKS:
        for part in ("strength", "confidence"):
            first, second = (getattr(getattr(each, part), block) for each in (plain, other))
            np.testing.assert_array_equal(first, second)


def test_too_little_data_and_noise_are_not_certified(greenhouse: tuple[Spec, Log]) -> None:
    _, (observations, actions, totals) = greenhouse
    few = identify(observations[:20], actions[:20], totals[:20]).certificate
    assert not few.reward
    assert not few.dynamics
    assert "20 segments are few" in few.notes[0]
    assert any("800 transitions are few" in note for note in few.notes)
    noise = np.random.default_rng(0).normal(size=len(totals))
    assert not identify(observations, actions, noise).certificate.reward


def test_the_cause_of_a_parent_is_not_taken_for_it() -> None:
    """150 episodes, and an action that moves the only parent explains the totals nearly as well."""
    kwargs = json.dumps({"problem": 2, "state_size": 10, "action_size": 3, "dead": 1})
    spec, log = collect(EnvConfig("apportion/Factored-v0", kwargs=kwargs), 150)
    assert same(identify(*log).graph, spec.true_graph)


def test_copies_and_dead_dimensions(greenhouse: tuple[Spec, Log]) -> None:
    """Of equal columns the first keeps the edges, a dead one has none, and the certificate says so."""
    _, (observations, actions, totals) = greenhouse
    wide = [np.column_stack([o, -3.6 * o[:, 0] + 1.0, np.full(len(o), 1e6)]) for o in observations]
    result = identify(wide, actions, totals)
    narrow = identify(observations, actions, totals)
    assert result.copies == {10: 0}
    assert np.array_equal(result.graph.state_to_reward[:10], narrow.graph.state_to_reward)
    assert not result.graph.state_to_reward[10:].any()
    assert not result.graph.state_to_state[10:].any()
    assert not result.graph.state_to_state[:, 11].any()
    assert np.array_equal(result.graph.state_to_state[:, 10], result.graph.state_to_state[:, 0])
    assert result.certificate.reward
    assert any("dimension 10 equals dimension 0" in note for note in result.certificate.notes)


def test_a_missing_parent_is_noticed() -> None:
    """The certificate compares what was found with all dimensions together, on segments left out."""
    segments = [np.random.default_rng(e).normal(size=(10, 3)) for e in range(200)]
    totals = np.array([s[:, 0].sum() + s[:, 1].sum() for s in segments])
    data = Segments(segments, totals, Scale.over(segments))
    dictionary = data.columns.dictionaries[0]
    honest = refine(data, {0: 0.5, 1: 0.5}, np.random.default_rng(0))
    assert certify(honest, 0.0, 200, 2000, dictionary).reward
    certificate = certify(honest._replace(unexplained=0.3), 0.1, 200, 2000, dictionary)
    assert not certificate.reward
    assert "some parent is missing" in certificate.notes[0]
    assert certificate.dynamics


@pytest.mark.parametrize("episodes", [1, 2, 5, 30])
def test_hardly_any_data_gives_an_answer_without_certificate(episodes: int) -> None:
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(2, 3)) for _ in range(episodes)]  # of one step each
    actions = [rng.normal(size=(1, 1)) for _ in range(episodes)]
    result = identify(observations, actions, rng.normal(size=episodes))
    assert not result.certificate.reward
    assert np.isfinite(result.reward_model.predict(np.zeros((4, 4)))).all()
    assert all(np.isfinite(block).all() for block in (*vars(result.strength).values(), result.explained))


def test_dimensions_that_never_change_and_single_episodes_explain_nothing() -> None:
    rng = np.random.default_rng(0)
    still = identify([np.ones((6, 3))] * 20, [np.zeros((5, 2))] * 20, np.arange(20.0))
    single = identify([rng.normal(size=(21, 3))], [rng.normal(size=(20, 2))], np.ones(1))
    assert not any(np.any(block) for block in vars(still.graph).values())
    for result in (still, single):
        assert not result.certificate.reward
        assert not result.graph.state_to_reward.any()
        assert result.explained == 0


def test_bad_data_is_refused(greenhouse: tuple[Spec, Log]) -> None:
    _, (observations, actions, totals) = greenhouse
    broken = totals.copy()
    broken[3] = np.nan
    with pytest.raises(UserError, match="segment 3 holds NaN or infinity"):
        identify(observations, actions, broken)
    with pytest.raises(UserError, match="one total per segment"):
        identify(observations, actions, totals[:-1])
    with pytest.raises(UserError, match="without any step"):
        identify([observations[0][:1], *observations[1:]], [actions[0][:0], *actions[1:]], totals)
    with pytest.raises(UserError, match="without any step"):
        identify([], [], np.zeros(0))
    with pytest.raises(UserError, match="300 segments but 3 entries in terminated"):
        identify(observations, actions, totals, terminated=np.zeros(3))


@pytest.mark.parametrize("seed", range(12))
def test_odd_data_gives_finite_answers(seed: int) -> None:
    """Whole numbers, rare events, copies and near copies, any unit, constant totals, few short episodes."""
    rng = np.random.default_rng(seed)
    states, dims = int(rng.integers(1, 7)), int(rng.integers(7, 10))
    units, episodes = 10.0 ** rng.uniform(-6, 6, dims), int(rng.choice([3, 20, 60, 200]))
    odd = [lambda z, d: np.round(z[:, d]), lambda z, d: z[:, d] > 2.5, lambda z, d: z[:, d - 1]]
    odd += [lambda z, d: z[:, d - 1] + 1e-5 * z[:, d], lambda z, d: z[:, d], lambda z, d: np.ones(len(z))]
    kinds = rng.integers(0, len(odd), dims)
    rows = []
    for _ in range(episodes):
        z = rng.normal(size=(rng.integers(2, 12), dims))
        for dim in range(1, dims):
            z[:, dim] = odd[kinds[dim]](z, dim)
        rows.append((z * units).astype(np.float32))
    totals = np.array([x[:-1, 0].sum() / units[0] if seed % 3 else 1.0 for x in rows]) * 10.0 ** (seed - 6)
    result = identify([x[:, :states] for x in rows], [x[:-1, states:] for x in rows], totals)
    assert all(np.isfinite(b).all() for g in (result.strength, result.confidence) for b in vars(g).values())
    assert np.isfinite(result.reward_model.predict(np.concatenate(rows))).all()


def test_entries_of_a_discrete_action_stand_or_fall_together() -> None:
    """Each is what the others are not: alone, none would be missed."""
    rng = np.random.default_rng(0)
    observations, actions, totals = [], [], []
    for _ in range(200):
        taken = np.eye(3)[rng.integers(3, size=20)]
        states = [rng.normal(size=2)]
        for action in taken:
            moved = [0.5 * states[-1][0] + action[0] - action[2], 0.5 * states[-1][1]]
            states.append(np.array(moved) + 0.3 * rng.normal(size=2))
        observations.append(np.array(states))
        actions.append(taken)
        totals.append(states[0][0] + sum(state[0] for state in states[1:-1]))
    found = identify(observations, actions, np.array(totals)).graph
    assert found.action_to_state.tolist() == [[True, False]] * 3
    assert found.state_to_state.tolist() == [[True, False], [False, True]]
    assert found.state_to_reward.tolist() == [True, False]
    assert not found.action_to_reward.any()
