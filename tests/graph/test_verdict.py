"""Present, absent, undecided: what is said is known, and what is not known is said."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.core.spec import BLOCKS
from apportion.graph import Identification, evidence, identify
from apportion.graph.features import Scale
from apportion.graph.priors import MISFIT
from apportion.graph.refine import refine
from apportion.graph.segments import Segments
from apportion.graph.verdict import Judged, in_totals, with_copies

Rows = NDArray[np.float64]


def search(
    columns: Callable[[np.random.Generator, int], Rows],
    reward: Callable[[Rows], Rows],
    episodes: int = 300,
    noise: float = 0.0,
    seed: int = 0,
    **settings: Any,
) -> Identification:
    """Columns [T+1, S] of each episode, an action that does nothing, and noise as a share of the variance."""
    rng = np.random.default_rng(seed)
    observations = [columns(rng, 21) for _ in range(episodes)]
    actions = [rng.uniform(-1, 1, (20, 1)) for _ in range(episodes)]
    totals = np.array([reward(x[:-1]).sum() for x in observations])
    totals = totals + totals.std() * np.sqrt(noise / (1 - noise)) * rng.normal(size=episodes)
    return identify(observations, actions, totals, **settings)


def normal(dims: int) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, rows: rng.normal(size=(rows, dims)) + 0.3 * rng.normal(size=dims)


def test_what_the_data_cannot_tell_is_undecided() -> None:
    """An effect worth 2% of totals that are half noise, in 160 episodes."""
    result = search(normal(6), lambda x: x[:, 0] + 0.2 * x[:, 3], 160, noise=0.5)
    assert result.verdict.state_to_reward[0] == "present"
    unseen = ~result.graph.state_to_reward
    assert np.all(result.confidence.state_to_reward[unseen] < 0.95)
    assert "undecided" in result.verdict.state_to_reward[unseen]


def test_confidence_and_verdict_agree() -> None:
    for noise in (0.0, 0.5):
        result = search(normal(5), lambda x: x[:, 0] * x[:, 1] + 0.3 * x[:, 2], 200, noise)
        for name in BLOCKS:
            parts = (getattr(part, name) for part in (result.graph, result.confidence, result.verdict))
            for edge, sure, said in zip(*(np.ravel(part) for part in parts), strict=True):
                assert 0 <= sure <= 1
                assert (said == "undecided") == (sure < 0.8)
                assert said == "undecided" or (said == "present") == edge
    assert result.verdict.to_dict()["state_to_reward"] == result.verdict.state_to_reward.tolist()


def test_more_may_count_as_negligible() -> None:
    def weak(x: Rows) -> Rows:
        return np.asarray(x[:, 0] + 0.1 * x[:, 3])

    strict, loose = (search(normal(6), weak, 200, 0.3, negligible=share) for share in (0.002, 0.2))
    assert strict.verdict.state_to_reward[3] != "absent"
    others = [1, 2, 4, 5]
    assert np.all(loose.verdict.state_to_reward[others] == "absent")
    assert np.all(loose.confidence.state_to_reward[others] > strict.confidence.state_to_reward[others])
    with pytest.raises(UserError, match="between 0 and 1"):
        search(normal(6), weak, 10, negligible=0.0)


def with_proxy(rng: np.random.Generator, rows: int) -> Rows:
    x = rng.normal(size=(rows, 4))
    x[:, 3] = x[:, 1] + 0.02 * rng.normal(size=rows)
    return x


def a_step_late(rng: np.random.Generator, rows: int) -> Rows:
    walk = 0.3 * rng.normal(size=(rows, 3)).cumsum(axis=0) + rng.normal(size=3)
    return np.column_stack([walk, np.concatenate([walk[:1, 1], walk[:-1, 1]])])


@pytest.mark.parametrize("columns", [with_proxy, a_step_late])
def test_columns_that_stand_for_each_other_share_a_verdict_and_are_named_together(
    columns: Callable[[np.random.Generator, int], Rows],
) -> None:
    result = search(columns, lambda x: x[:, 1] + x[:, 0], 200, noise=0.3)
    assert result.groups == [(1, 3)]
    assert result.verdict.state_to_reward.tolist() == ["present", "undecided", "absent", "undecided"]
    reasons = result.reasons
    assert (reasons[1].instead, reasons[3].instead) == (3, 1)
    assert reasons[1].chance > 0.2


def test_equal_columns_share_a_verdict() -> None:
    def twice(rng: np.random.Generator, rows: int) -> Rows:
        x = rng.normal(size=(rows, 3))
        return np.column_stack([x, 1.0 - 60.0 * x])

    result = search(twice, lambda x: x[:, 0])
    assert result.copies == {3: 0, 4: 1, 5: 2}
    assert result.groups == [(0, 3)]
    assert result.verdict.state_to_reward.tolist() == ["undecided", "absent", "absent"] * 2
    assert result.graph.state_to_reward.tolist() == [True] + [False] * 5


@pytest.mark.parametrize(("confidence", "groups"), [(0.98, [(0, 1)]), (0.5, [])])
def test_of_equal_columns_one_feeds_the_reward_only_where_that_is_sure(
    confidence: float, groups: list[tuple[int, ...]]
) -> None:
    """An edge that is on by as little as even odds is no such knowledge."""
    nothing, on = np.zeros(3), np.array([True, False, False])
    judged = Judged(on, np.array([confidence, 0.9, 0.9]), nothing, [], nothing > 0, {})
    assert with_copies(judged, {1: 0}) == groups


def _two_vectors_and_a_flag(rng: np.random.Generator, rows: int) -> Rows:
    groups = [np.eye(size)[rng.integers(size, size=rows)] for size in (3, 4)]
    return np.column_stack([*groups, rng.random(rows) < 0.1, rng.normal(size=rows)])


def test_one_of_several_one_hot_vectors_is_found_whole_beside_a_flag() -> None:
    result = search(_two_vectors_and_a_flag, lambda x: x[:, 3] - 0.5 * x[:, 5] + x[:, 8], 400, noise=0.2)
    assert result.verdict.state_to_reward.tolist() == ["absent"] * 3 + ["present"] * 4 + ["absent", "present"]


@pytest.mark.parametrize("main", [0.0, 0.5])
def test_a_product_of_four_is_found(main: float) -> None:
    def reward(x: Rows) -> Rows:
        return np.asarray(np.prod(x[:, :4], axis=1) + main * x[:, 4])

    result = search(normal(7), reward, 300, noise=0.2)
    assert np.all(result.graph.state_to_reward[:4])
    assert result.graph.state_to_reward[4] == (main > 0)


def test_causes_beyond_all_features_are_never_surely_denied() -> None:
    """A product of six is half of the variance: noise, for all that a search can tell."""

    def reward(x: Rows) -> Rows:
        return np.asarray(0.7 * np.prod(np.sign(x[:, :6]), axis=1) + x[:, 6])

    result = search(lambda rng, rows: rng.normal(size=(rows, 9)), reward, 400)
    assert not result.graph.state_to_reward[:6].any()
    assert np.all(result.confidence.state_to_reward[:6] < 0.95)
    nothing = search(lambda rng, rows: rng.normal(size=(rows, 9)), lambda x: reward(x) - x[:, 6], 400)
    assert not nothing.certificate.reward
    assert "nothing outside of that scope can be excluded" in nothing.certificate.scope


def test_the_certificate_states_its_scope() -> None:
    scope = search(normal(3), lambda x: x[:, 0]).certificate.scope
    assert "less than 0.01 of the totals' variance, as a main effect or in a pair" in scope
    assert "excluded" not in scope
    noisy = search(normal(3), lambda x: x[:, 0], noise=0.5).certificate
    assert noisy.reward
    assert "stays unexplained, where nothing outside of that scope can be excluded" in noisy.scope


def test_long_episodes_are_certified() -> None:
    """Each of 3,000 steps: all of them are summed, and the dynamics found in some of them."""
    rng = np.random.default_rng(0)
    observations = [np.cumsum(rng.normal(size=(3001, 2)), axis=0) % 5 for _ in range(151)]
    actions = [rng.uniform(-1, 1, (3000, 1)) for _ in range(151)]
    totals = np.array([o[:-1, 0].sum() for o in observations])
    result = identify(observations, actions, totals)
    assert result.verdict.state_to_reward.tolist() == ["present", "absent"]
    assert result.certificate.reward
    assert result.certificate.dynamics


def test_the_dynamics_certificate_counts_the_transitions_that_were_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apportion.graph.SAMPLE", 100)
    certificate = search(normal(3), lambda x: x[:, 0]).certificate
    assert not certificate.dynamics
    assert any("100 transitions are few" in note for note in certificate.notes)


def test_few_transitions_leave_dynamics_undecided() -> None:
    def noise(rng: np.random.Generator, rows: int) -> Rows:
        return rng.normal(size=(rows, 4))

    few, many = (search(noise, lambda x: x[:, 0], episodes) for episodes in (5, 300))
    assert not few.graph.state_to_state.any()
    assert np.mean(few.verdict.state_to_state == "undecided") > 0.8
    assert np.all(many.verdict.state_to_state == "absent")


def test_the_reward_function_knows_what_was_overlooked_at_first() -> None:
    """Weak parents that the evidence brings in become part of it where they help to predict."""

    def reward(x: Rows) -> Rows:
        return np.asarray(x[:, 0] + 0.25 * x[:, 1] + 0.25 * x[:, 2] + 0.25 * x[:, 3])

    result = search(normal(5), reward, 500, noise=0.4)
    assert np.flatnonzero(result.graph.state_to_reward).tolist() == [0, 1, 2, 3]
    assert {0, 1, 2, 3} <= set(result.reward_model.basis.dims.tolist())
    assert np.all(result.strength.state_to_reward[:4] > 0.005)


def burst(episodes: int, seed: int = 0) -> dict[str, Any]:
    """A tank that bursts when its pressure, which a policy steers ever better, goes too high: that ends the
    episode and costs 40. Beside it a clock and a gauge. Paid are price x pressure and the fine."""
    rng = np.random.default_rng(seed)
    log: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "totals", "terminated")}
    for episode in range(episodes):
        state, rows, moves, total, gain = np.array([1.0, 0.5, 0.0, 0.0]), [], [], 0.0, episode / episodes
        for step in range(40):
            move = float(np.clip(1.5 * rng.normal() - gain * (state[1] - 1.0), -2, 2))
            rows.append(state)
            moves.append([move])
            total += state[0] * state[1]
            price = np.clip(state[0] + 0.2 * rng.normal(), 0.2, 2.0)
            state = np.array([price, 0.9 * state[1] + 0.4 * move + 0.2, step + 1.0, rng.normal()])
            if state[1] > 2.9:
                break
        rows.append(state)
        for name, value in zip(
            log, (rows, moves, total - 40 * (state[1] > 2.9), state[1] > 2.9), strict=True
        ):
            log[name].append(np.array(value))
    return {**log, "totals": np.array(log["totals"]), "terminated": np.array(log["terminated"])}


@pytest.mark.parametrize("told", [True, False])
def test_a_fine_at_an_early_end_is_not_the_clocks(told: bool) -> None:
    """Whether a log says which episodes ended by themselves, or that has to be told from their lengths."""
    log = burst(300)
    assert 0.2 < log["terminated"].mean() < 0.8
    result = identify(**(log if told else log | {"terminated": None}))
    assert result.verdict.state_to_reward.tolist() == ["present", "present", "absent", "absent"]
    assert result.verdict.action_to_reward.tolist() == ["absent"]
    assert result.certificate.reward
    assert result.reward_model.per_end == pytest.approx(-40, abs=1)
    steps = np.concatenate(
        [
            np.concatenate([o[:-1], a], axis=1)
            for o, a in zip(log["observations"], log["actions"], strict=True)
        ]
    )
    np.testing.assert_allclose(result.reward_model.predict(steps), steps[:, 0] * steps[:, 1], atol=0.3)


def test_bystanders_leave_when_an_overlooked_parent_comes_in() -> None:
    """x3 drives x1 and x4 drives x2, so that each may stand for the other; paid is x0 x1 x2 + 0.3 x5."""

    def columns(rng: np.random.Generator, rows: int) -> Rows:
        x = rng.normal(size=(rows, 6)) + rng.normal(size=6)
        x[1:, 1] = 0.9 * x[:-1, 3] + 0.1 * x[1:, 1]
        x[:, 2] = 0.5 * x[:, 4] + 0.5 * x[:, 2]
        return x

    result = search(columns, lambda x: x[:, 0] * x[:, 1] * x[:, 2] + 0.3 * x[:, 5], 400)
    assert result.graph.state_to_reward.tolist() == [True, True, True, False, False, True]


@pytest.mark.parametrize(("seed", "told"), [(0, True), (2, False), (4, False)])
def test_a_reading_that_is_nearly_another_takes_nothing_from_others(seed: int, told: bool) -> None:
    """Of the two the first feeds the reward, which seldom can be told; nor are both sure where both came in.
    Where they changed places, with plain features for the newcomer, what these missed was given to
    strangers."""
    rng, episodes, steps = np.random.default_rng(seed), 300, 20
    states = rng.normal(size=(episodes, steps + 1, 4))
    for t in range(steps):
        states[:, t + 1] = 0.7 * (states[:, t] + states[:, t + 1])
    again = states[:, :, :1] + 0.01 * rng.normal(size=(episodes, steps + 1, 1))
    first, second = states[:, :-1, 0], states[:, :-1, 1]
    totals = (np.sin(2 * first + 0.5) * second + np.abs(first)).sum(axis=1)
    shown = np.concatenate([states, again], axis=2)
    found = identify(list(shown), list(rng.normal(size=(episodes, steps, 1))), totals)
    assert found.verdict.state_to_reward.tolist() == [
        "present" if told else "undecided", "present", "absent", "absent", "undecided",
    ]  # fmt: skip
    assert found.groups == ([] if told else [(0, 4)])


def test_what_cancels_out_in_totals_may_be_there_in_steps() -> None:
    """How far a pendulum moves adds up to next to nothing over an episode."""

    def columns(rng: np.random.Generator, rows: int) -> Rows:
        moved = np.diff(np.sin(0.9 * np.arange(rows + 1) + rng.uniform(0, 6)))
        level, idle = rng.normal(size=(2, 1)) + 0.3 * rng.normal(size=(2, rows))
        return np.stack([level, moved + 0.02 * rng.normal(size=rows), idle], axis=1)

    result = search(columns, lambda x: x[:, 0] + 0.5 * x[:, 1], 160, noise=0.01)
    assert result.verdict.state_to_reward.tolist() == ["present", "absent", "absent"]
    assert result.nowhere[:3].tolist() == [False, False, True]
    assert result.certificate.reward
    assert "absent from totals may be worth more in single steps" in result.certificate.scope


def test_shares_of_steps_are_those_of_a_plain_computation() -> None:
    """What an effect of a column is worth in totals that has this share of the steps' variance."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(30, 3)) + rng.normal(size=3) for _ in range(60)]
    totals = np.array([each[:, 0].sum() for each in rows])
    segments = Segments(rows, totals, Scale.over(rows))
    fit = refine(segments, {0: 1.0}, rng)
    sums = segments.columns.sums
    features = segments.columns.dictionaries[0].features(np.concatenate(rows))
    for column, least in enumerate(in_totals(segments, segments.columns, fit, 0.01)):
        of_totals = np.sum((sums[:, column] - sums[:, column].mean()) ** 2) / np.sum(
            (totals - totals.mean()) ** 2
        )
        of_steps = np.var(features[:, column]) / np.var(fit.model.predict(np.concatenate(rows)))
        assert least == pytest.approx(0.01 / np.clip(of_steps / of_totals, 1, 1 / MISFIT), rel=1e-6)


def test_many_segments_are_weighed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single block of features may be more numbers than are held at once: 9,000 episodes of a few steps
    ended a training."""
    whole = search(normal(4), lambda x: x[:, 0] + np.sin(x[:, 1]))
    monkeypatch.setattr(evidence, "NUMBERS_AT_ONCE", 100)
    parts = search(normal(4), lambda x: x[:, 0] + np.sin(x[:, 1]))
    for name in BLOCKS:
        assert getattr(parts.verdict, name).tolist() == getattr(whole.verdict, name).tolist()
        np.testing.assert_allclose(getattr(parts.confidence, name), getattr(whole.confidence, name))
