"""Contributions to learned rewards, for every method that has one; the others say why not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.core.types import Method, Transitions
from apportion.envs.greenhouse import BENEFIT, COMFORT, GAS_PRICE, Greenhouse
from apportion.methods import METHODS, grd
from apportion.runs.contributions import (
    Explanation,
    Precision,
    Steps,
    check_explainable,
    compile_reward,
    explain_reward,
)
from builders import initial

SPEC = Spec("toy", ("height", "speed", "colour"), ("push", "turn"), 6, 4)
LEARNED = ["grd", "rd", "rrd", "rrd-unbiased", "diaster", "gp-lrr"]


def method_of(name: str) -> Method:
    return METHODS[name].make(METHODS[name].config())


EVERY = np.arange(5)  # each dimension is a player of its own


def steps(seed: int, count: int) -> Steps:
    return np.random.default_rng(seed).normal(size=(count, 3 + 2 + 3)).astype(np.float32)


def explained(method: Method, state: Any, precision: Precision) -> Explanation:
    reward_of = compile_reward(method, 3)
    rng, told = np.random.default_rng(0), list[tuple[int, int]]()

    def tell(done: int, of: int) -> None:
        told.append((done, of))

    given, behind = steps(1, 9), steps(2, 8)
    found = explain_reward(method, reward_of, state, given, behind, precision, rng, EVERY, tell)
    assert told[-1] == (9, 9)
    return found


@pytest.mark.parametrize("exact_up_to", [1, 8], ids=["sampled", "exact"])
@pytest.mark.parametrize("name", LEARNED)
def test_contributions_add_up_to_the_learned_reward(name: str, exact_up_to: int) -> None:
    method = method_of(name)
    state = initial(method, SPEC)
    found = explained(method, state, Precision(background=8, exact_up_to=exact_up_to))
    assert found.exact == (exact_up_to == 8)
    assert found.contributions.shape == (9, 5)
    assert (found.standard_errors[:, found.players] > 0).all()
    np.testing.assert_allclose(
        found.contributions.sum(axis=1), found.redistributed - found.baseline, rtol=0, atol=1e-12
    )


def test_only_dimensions_with_an_edge_are_paid() -> None:
    method = grd.make(grd.Config(structure="gradient"))
    state = initial(method, SPEC)
    logits = state.model.edges._replace(
        state_to_reward=jnp.asarray([5.0, -5.0, -5.0]), action_to_reward=jnp.asarray([-5.0, 5.0])
    )
    state = state._replace(model=state.model._replace(edges=logits))
    found = explained(method, state, Precision())
    assert found.players.tolist() == [True, False, False, False, True]
    assert (found.contributions[:, [1, 2, 3]] == 0).all()
    assert (found.contributions[:, [0, 4]] != 0).all()
    total = found.contributions.sum(axis=1)
    np.testing.assert_allclose(total, found.redistributed - found.baseline, atol=1e-6)
    off = jax.tree.map(lambda logit: jnp.full_like(logit, -5.0), state.model.edges)
    found = explained(method, state._replace(model=state.model._replace(edges=off)), Precision())
    assert (found.contributions == 0).all()  # without any edge all is baseline
    np.testing.assert_allclose(found.redistributed, found.baseline, atol=1e-6)


def test_without_a_graph_a_dimension_that_never_varies_does_not_play() -> None:
    method = method_of("rd")
    state = initial(method, SPEC)
    given, background, rng = steps(1, 9), steps(2, 8), np.random.default_rng(0)
    given[:, [1, 6]] = background[:, [1, 6]] = 0.5
    reward_of = compile_reward(method, 3)
    found = explain_reward(method, reward_of, state, given, background, Precision(), rng, EVERY)
    assert found.players.tolist() == [True, False, True, True, True]


def test_a_dimension_of_rrd_comes_with_its_next_value() -> None:
    """RRD reads s - s'. Where both of a step's values are the background's, the dimension earns nothing."""
    method = method_of("rrd")
    state = initial(method, SPEC)
    background, given = np.repeat(steps(2, 4)[:1], 4, axis=0), steps(1, 5)
    given[:, [0, 5]] = background[0, [0, 5]]
    given[0, 5] += 1  # only its next value differs, and only here
    rng = np.random.default_rng(0)
    found = explain_reward(
        method, compile_reward(method, 3), state, given, background, Precision(), rng, EVERY
    )
    assert found.contributions[0, 0] != 0
    np.testing.assert_allclose(found.contributions[1:, 0], 0, atol=1e-6)


def greenhouse_reward(state: Any, transitions: Transitions) -> Any:
    """The greenhouse's own, which is a sum of functions of single gauges, in JAX."""
    gauges, heater = transitions.observation, transitions.action[:, 0]
    (best, weight), benefit = np.array(list(COMFORT.values())).T, np.array(list(BENEFIT.values()))
    discomfort = ((gauges[:, :3] - jnp.float32(best)[None]) ** 2) @ jnp.float32(weight)
    return 1 - discomfort + jnp.tanh(gauges[:, 3:5]) @ jnp.float32(benefit) - GAS_PRICE * (1 + heater)


@pytest.mark.parametrize("exact_up_to", [8, 13], ids=["sampled", "exact"])
def test_a_reward_that_is_a_sum_pays_its_terms_and_ranks_the_true_parents_first(exact_up_to: int) -> None:
    """No graph is given: all 13 dimensions of the greenhouse play."""
    rng = np.random.default_rng(0)

    def drawn(count: int) -> Steps:
        return rng.uniform(-1, 1, (count, 10 + 3 + 10)).astype(np.float32)

    method = method_of("rd")._replace(reward=greenhouse_reward)
    given, background, precision = drawn(6), drawn(4), Precision(exact_up_to=exact_up_to)
    reward_of = compile_reward(method, 10)
    found = explain_reward(method, reward_of, None, given, background, precision, rng, np.arange(13))
    temperature = [-0.5 * (steps[:, 0] - 0.4) ** 2 for steps in (given, background)]
    np.testing.assert_allclose(found.contributions[:, 0], temperature[0] - temperature[1].mean(), atol=1e-6)
    heater = [-GAS_PRICE * steps[:, 10] for steps in (given, background)]
    np.testing.assert_allclose(found.contributions[:, 10], heater[0] - heater[1].mean(), atol=1e-6)
    # Only the background is chance: where a reward is a sum, orders are none.
    expected = temperature[1].std(ddof=1) / np.sqrt(len(temperature[1]))
    np.testing.assert_allclose(found.standard_errors[:, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(found.mean_errors[0], expected, rtol=1e-4)
    ranking = np.argsort(-np.abs(found.contributions).mean(axis=0))
    truth = np.concatenate([Greenhouse.true_graph.state_to_reward, Greenhouse.true_graph.action_to_reward])
    assert truth[ranking].tolist() == [True] * 6 + [False] * 7


@pytest.mark.parametrize(
    ("players", "part", "count"), [(16, 1, 256), (32, 1, 128), (100, 1, 64), (2, 0.5, 64), (2, 0, 16)]
)
def test_many_players_or_a_small_part_need_fewer_steps(players: int, part: float, count: int) -> None:
    """So that the work does not grow with them; what was asked for holds for any number."""
    assert Precision().steps_behind(players, part) == count
    assert Precision(background=300).steps_behind(players, part) == 300


def test_a_diverged_reward_has_no_contributions() -> None:
    method = method_of("rd")
    state = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), initial(method, SPEC))
    found = explained(method, state, Precision())
    assert np.isnan(found.contributions).all()
    assert np.isnan(found.baseline)
    check_explainable("rd", method, state, steps(0, 4), 3)  # it is still recognised


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_explained_or_says_why_not(name: str) -> None:
    method = method_of(name)
    state = initial(method, SPEC)
    if name in LEARNED:
        check_explainable(name, method, state, steps(0, 4), 3)
        return
    reason = "whole segment" if method.credit is not None else "nothing to explain"
    with pytest.raises(UserError, match=f"{name}.*{reason}"):
        check_explainable(name, method, state, steps(0, 4), 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"background": 1}, "background=1 must be at least 2"),
        ({"exact_up_to": 17}, "between 1 and 16"),
        ({"rounds": 0}, "rounds=0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Precision(**settings)
