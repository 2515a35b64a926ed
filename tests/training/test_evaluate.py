"""Scores equal their definitions, and are taken on the true reward."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.core.spec import Graph
from apportion.core.types import Segments
from apportion.data import replay as replays
from apportion.methods import METHODS
from apportion.training import evaluate
from builders import SPEC


@pytest.mark.parametrize(("name", "column"), [("oracle", "true_rewards"), ("observed", "paid")])
def test_redistributed_rewards_belong_to_their_steps(name: str, column: str) -> None:
    """Episodes of different lengths, two lanes, one compiled function."""
    method = METHODS[name].make(METHODS[name].config())
    lanes = [
        [builders.episode(0, [2, 5]), builders.episode(1, [1])],
        [builders.episode(2, [6]), builders.episode(3, [3])],
    ]
    states = jnp.zeros(2)
    found = evaluate.make_redistribute(method, SPEC)(states, lanes)
    for lane, rewards in zip(lanes, found, strict=True):
        for episode, reward in zip(lane, rewards, strict=True):
            np.testing.assert_array_equal(reward, episode[column])


def test_credit_by_whole_segments_comes_back_to_the_right_steps() -> None:
    """A method that gives each step its segment's total times the step's place in it."""

    def credit(state: jax.Array, segments: Segments) -> jax.Array:
        place = jnp.arange(segments.mask.shape[1])
        return state * segments.total[:, None] * place[None, :].astype(jnp.float32)

    fixed = METHODS["observed"].make(METHODS["observed"].config())
    method = fixed._replace(credit=credit, reward=lambda state, steps: steps.credit)
    lanes = [
        [builders.episode(0, [2, 4]), builders.episode(1, [1])],
        [builders.episode(2, [4]), builders.episode(3, [3, 4, 6])],
    ]
    scales = np.array([1.0, 2.0], np.float32)
    found = evaluate.make_redistribute(method, SPEC)(jnp.asarray(scales), lanes)
    for scale, lane, rewards in zip(scales, lanes, found, strict=True):
        for episode, reward in zip(lane, rewards, strict=True):
            steps = evaluate.transitions_of(episode)
            wanted = scale * np.asarray(steps.segment_total) * np.asarray(steps.step_in_segment)
            np.testing.assert_allclose(reward, wanted, rtol=1e-5)


def test_judge_scores_every_lane_by_the_true_reward() -> None:
    lanes = [
        [builders.episode(0, [2, 5]), builders.episode(1, [1])],
        [builders.episode(2, [6]), builders.episode(3, [3])],
    ]
    rng = np.random.default_rng(9)
    learned = [[rng.normal(size=len(e["paid"])).astype(np.float32) for e in lane] for lane in lanes]
    found = evaluate.judge(lanes, learned, [0.5, np.nan])
    near = partial(pytest.approx, rel=1e-5, abs=1e-6)  # sums in single precision, in any order
    np.testing.assert_array_equal(found.reward_correlation, [0.5, np.nan])
    for i, lane in enumerate(lanes):
        returns = [e["true_rewards"].sum() for e in lane]
        errors = [abs(r.sum() - total) for r, total in zip(learned[i], returns, strict=True)]
        true = np.concatenate([e["true_rewards"] for e in lane])
        assert found.returns[i] == near(np.mean(returns))
        assert found.return_std[i] == near(np.std(returns))
        assert found.lengths[i] == np.mean([len(e["paid"]) for e in lane])
        assert found.return_error[i] == near(np.mean(errors) / np.mean(np.abs(returns)))
        alike = (
            np.array([len(e["paid"]) for e in lane]) * sum(returns) / len(true)
        )  # one reward for all steps
        constant = np.mean(np.abs(alike - returns)) / np.mean(np.abs(returns))
        assert found.constant_error[i] == near(constant)
        assert found.episode_correlation[i] == pytest.approx(
            np.corrcoef(np.concatenate(learned[i]), true)[0, 1], abs=1e-5
        )
        np.testing.assert_array_equal(found.episodes[i][0]["redistributed"], learned[i][0])


def test_a_return_of_zero_has_no_relative_error() -> None:
    episode = builders.episode(0, [3]) | {"true_rewards": np.zeros(3, np.float32)}
    found = evaluate.judge([[episode]], [[np.ones(3, np.float32)]], [np.nan])
    assert np.isnan(found.return_error[0])
    assert np.isnan(found.constant_error[0])


@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e14])
@pytest.mark.parametrize("name", ["oracle", "observed"])
def test_correlation_on_the_replay(name: str, unit: float) -> None:
    """Two segments of three steps: true rewards 0..5, paid at the ends, in small and large coins."""
    true = unit * jnp.arange(8.0)
    paid = unit * jnp.asarray([0.0, 0.0, 3.0, 0.0, 0.0, 12.0, 0.0, 0.0])
    replay = replays.init(SPEC, 8)._replace(
        paid=paid,
        true_reward=true,
        segment_start=jnp.asarray([0, 3] + [0] * 6),
        segment_length=jnp.asarray([3, 3] + [0] * 6),
        segment_first_step=jnp.asarray([0, 3] + [0] * 6),
        rows=jnp.asarray(7),
        steps=jnp.asarray(6),
        segments=jnp.asarray(2),
    )
    method = METHODS[name].make(METHODS[name].config())
    found = evaluate.replay_correlation(method, jnp.zeros(()), replay, jax.random.key(0))
    expected = 1.0 if name == "oracle" else np.corrcoef(paid[:6], true[:6])[0, 1]
    assert float(found) == pytest.approx(expected, abs=0.03)


def test_pearson_equals_numpy_and_knows_when_there_is_nothing_to_say() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50))
    assert evaluate.pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert evaluate.pearson(x, 3 * x + 1) == pytest.approx(1)
    assert evaluate.pearson(x, -x) == pytest.approx(-1)
    assert np.isnan(evaluate.pearson(x, np.ones(50)))


@pytest.mark.parametrize(
    ("probability", "truth", "f1", "precision", "recall"),
    [
        ([0.9, 0.5, 0.1, 0.2], [1, 0, 1, 0], 0.5, 0.5, 0.5),  # one hit, one false, one missed; 0.5 is on
        ([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0], 0.4, 0.25, 1.0),
        ([0.1, 0.1], [1, 1], 0.0, 0.0, 0.0),
        ([0.9, 0.9], [0, 0], 0.0, 0.0, 0.0),
        ([0.1, 0.1], [0, 0], 1.0, 1.0, 1.0),
    ],
)
def test_f1(probability: list[float], truth: list[int], f1: float, precision: float, recall: float) -> None:
    found = evaluate.f1(np.array(probability), np.array(truth))
    assert found == pytest.approx({"f1": f1, "precision": precision, "recall": recall})


def test_structure_is_scored_block_by_block() -> None:
    truth = Graph(np.array([True, False]), np.array([True]), np.eye(2, dtype=bool), np.ones((1, 2), bool))
    found = Graph(np.array([0.9, 0.9]), np.array([0.9]), 0.8 * np.eye(2), np.zeros((1, 2)))
    scores = evaluate.structure_scores(found, truth)
    assert {name: score["f1"] for name, score in scores.items()} == pytest.approx(
        {"state_to_reward": 2 / 3, "action_to_reward": 1, "state_to_state": 1, "action_to_state": 0}
    )


def test_an_environment_that_pays_only_at_the_end_has_no_correlation() -> None:
    """Even where the learned reward is the very one that was paid. Each lane is judged by itself."""
    late, usual = builders.episode(0, [6]), builders.episode(1, [6])
    late["true_rewards"] = late["paid"].copy()
    lanes = [[late], [usual], [builders.episode(2, [1]), builders.episode(3, [1])]]
    rewards = [[episode["true_rewards"] for episode in lane] for lane in lanes]
    found = evaluate.judge(lanes, rewards, np.array([0.9, 0.8, 0.7]))
    assert found.step_rewards.tolist() == [False, True, True]  # steps that are whole episodes are paid singly
    np.testing.assert_array_equal(found.reward_correlation, [np.nan, 0.8, 0.7])
    assert np.isnan(found.episode_correlation).tolist() == [True, False, False]
    np.testing.assert_allclose(found.return_error, 0, atol=1e-6)


def test_segments_of_an_evaluation_are_none_that_training_has_numbered() -> None:
    """Hopfield-RUDDER leaves the stored segment of the same number out: here, there is none to leave out."""

    def credit(state: jax.Array, segments: Segments) -> jax.Array:
        return jnp.broadcast_to(segments.number[:, None].astype(jnp.float32), segments.mask.shape)

    fixed = METHODS["observed"].make(METHODS["observed"].config())
    method = fixed._replace(credit=credit, reward=lambda state, steps: steps.credit)
    [[found]] = evaluate.make_redistribute(method, SPEC)(jnp.ones(1), [[builders.episode(0, [2, 4])]])
    assert (found < 0).all()
