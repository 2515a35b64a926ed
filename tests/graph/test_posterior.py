"""Rewards of steps from sums: the posterior beside plain linear algebra, and what totals cannot tell."""

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from apportion.graph import posterior, relevance
from apportion.graph.features import Scale
from apportion.graph.posterior import Posterior, Summed, spread
from apportion.graph.products import BLOCKS, FUNCTIONS, Products
from apportion.graph.relevance import Found


def segments(rng, count=120, steps=20, dims=4):
    return [rng.normal(size=(steps, dims)).cumsum(axis=0) * 0.3 for _ in range(count)]


def products(rows):
    some = np.concatenate(rows)
    single = Products.single(Scale.over(rows), some)
    return single.joined(single.plain_pairs())


def found_with(features, noise=-2.0):
    dims = len(features.used)
    return Found(np.linspace(-2.0, 0.0, dims), np.linspace(-3.0, -1.0, BLOCKS), noise, np.arange(dims), 0.0)


def test_the_posterior_is_that_of_plain_linear_algebra():
    rng = np.random.default_rng(0)
    rows = segments(rng, 30)
    totals = np.array([each[:, 0].sum() + rng.normal() for each in rows])
    lengths = np.array([len(each) for each in rows])
    summed = Summed.of(products(rows), rows, totals)
    found = found_with(summed.features)
    got = summed.posterior(found, rng)
    # N(0, V) a priori, seen through sums with noise: mean V Sᵀ C⁻¹ y, of features and a level.
    variances = np.append(found.variances(summed.features), posterior.WIDE) * summed.size**2
    sums = np.column_stack([summed.sums, lengths])
    covariance = (sums * variances) @ sums.T + np.diag(found.noise * summed.size**2 * lengths)
    mean = variances * (sums.T @ np.linalg.solve(covariance, summed.left))
    np.testing.assert_allclose(got.weights[0], mean[:-1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(got.per_step[0] - summed.level, mean[-1], atol=1e-9)
    exact = np.diag(variances) - (variances[:, None] * sums.T) @ np.linalg.solve(covariance, sums * variances)
    drawn = np.cov(got.weights[1:].T)
    np.testing.assert_allclose(np.trace(drawn), np.trace(exact[:-1, :-1]), rtol=0.2)


def test_the_evidence_has_the_slope_that_it_claims():
    rng = np.random.default_rng(1)
    rows = segments(rng, 40)
    totals = np.array([each[:, 0].sum() for each in rows])
    problem = Summed.of(products(rows), rows, totals).problem()
    objective = relevance._Objective(problem)
    at = rng.normal(-2, 0.5, len(problem.features.used) + BLOCKS + 1)
    numeric = approx_fprime(at, lambda at: objective(at)[0], 1e-7)
    assert objective(at)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def test_entries_are_one_input_and_flags_are_several_with_the_chance_of_one():
    """A one-hot vector, three flags of one owner, and a vector of two numbers."""
    rng = np.random.default_rng(5)
    kinds, flags = np.eye(3)[rng.integers(0, 3, 400)], (rng.random((400, 3)) < 0.4).astype(float)
    rows, owners = np.column_stack([kinds, flags, rng.normal(size=(400, 2))]), np.repeat([0, 1, 2], [3, 3, 2])
    single = Products.single(Scale.over([rows]), rows, owners)
    assert [len(set(single.inputs[owners == owner])) for owner in range(3)] == [1, 3, 1]
    # Three draws of an owner, then of one of its inputs.
    once = np.array([1 / 3, 1 / 9, 1 / 3])[owners]
    np.testing.assert_allclose(single.chances(owners)[single.inputs], 1 - (1 - once) ** 3)


def test_features_are_products_of_functions_of_different_dimensions():
    rng = np.random.default_rng(2)
    rows = segments(rng, 10)
    features = products(rows).rich(np.arange(3))
    values = features.values(rows[0])
    table = features._table(rows[0])
    for place in rng.integers(0, features.size, 50):
        factors = [
            table[:, dim * FUNCTIONS + function]
            for dim, function in zip(features.dims[place], features.functions[place], strict=True)
            if dim >= 0
        ]
        np.testing.assert_allclose(values[:, place], np.prod(factors, axis=0), rtol=1e-6)
        used = features.dims[place][features.dims[place] >= 0]
        assert len(set(used.tolist())) == len(used)
    of_block = {}
    for block, portion, dims in zip(features.blocks, features.portions, features.dims.tolist(), strict=True):
        of_block.setdefault((block, *dims), []).append(portion)
    assert all(sum(each) == pytest.approx(1) for each in of_block.values())


def test_shares_are_shapley_values():
    """Beside all orders in which dimensions become known, with absent ones from every background step."""
    rng = np.random.default_rng(3)
    rows = segments(rng, 60, dims=3)
    totals = np.array([(each[:, 0] * each[:, 1] + np.abs(each[:, 2])).sum() for each in rows])
    found = posterior.fit(rows, totals).posterior(rng)
    steps, behind = np.concatenate(rows)[:3], np.concatenate(rows)[10:26]
    got = found.shares(steps, behind)
    for step, shares in zip(steps, got.mean, strict=True):
        expected = np.zeros(3)
        for order in permutations(range(3)):
            mixed = behind.copy()
            before = found.expected(mixed).mean()
            for dim in order:
                mixed[:, dim] = step[dim]
                after = found.expected(mixed).mean()
                expected[dim] += (after - before) / 6
                before = after
        np.testing.assert_allclose(shares, expected, atol=2e-3 * np.abs(expected).max())
    whole = found.expected(steps) - found.expected(behind).mean()
    np.testing.assert_allclose(got.mean.sum(axis=1), whole, atol=1e-3 * np.abs(whole).max())
    assert (got.variance >= 0).all()
    np.testing.assert_allclose(got.average[:, 0], got.mean.mean(axis=0), atol=1e-5)


def test_totals_recover_steps_and_intervals_cover_them():
    rng = np.random.default_rng(4)
    rows = segments(rng, 200, dims=5)
    earned = [each[:, 0] * (each[:, 1] > 0) - np.abs(each[:, 2]) + 0.3 * rng.normal(size=20) for each in rows]
    found = posterior.fit(rows, np.array([each.sum() for each in earned])).posterior(rng)
    draws, truth = found.rewards(np.concatenate(rows)), np.concatenate(earned)
    assert np.corrcoef(draws[:, 0], truth)[0, 1] > 0.93
    off = np.abs(draws[:, 0] - truth) / np.sqrt(spread(draws) + found.noise)
    assert 0.85 < np.mean(off < 1.645) < 0.98


def test_what_is_the_same_in_every_episode_is_nobodys_credit():
    """A clock passes once in every episode: totals cannot tell what it earns, so it gets nothing, with a wide
    interval. Other dimensions are credited as if it were not there."""
    rng = np.random.default_rng(5)
    time = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    rows = [np.column_stack([np.sin(time), np.cos(time), x]) for x in segments(rng, 150, 30, 2)]
    earned = [2 * each[:, 2] for each in rows]
    totals = np.array([each.sum() for each in earned]) + rng.normal(0, 0.5, 150)
    found = posterior.fit(rows, totals).posterior(rng)
    draws, truth = found.rewards(np.concatenate(rows)), np.concatenate(earned)
    assert np.corrcoef(draws[:, 0], truth)[0, 1] > 0.99
    assert 0.8 < np.std(draws[:, 0]) / np.std(truth) < 1.2
    shares = found.shares(np.concatenate(rows)[:300], np.concatenate(rows)[::20])
    clock, known = np.sqrt(shares.variance[:, :2].sum(axis=1).mean()), np.sqrt(shares.variance[:, 2].mean())
    assert clock > 2 * known


def test_a_constant_of_every_total_falls_to_no_step():
    """A flag that is on in the first step of each episode must not earn what all outcomes have in common."""
    rng = np.random.default_rng(6)
    rows = []
    for steps in rng.integers(3, 12, 400):
        first = np.arange(steps)[:, None] == 0
        rows.append(np.column_stack([first, rng.normal(size=(steps, 2))]))
    totals = np.array([3.0 + each[:, 1].sum() for each in rows]) + rng.normal(0, 0.1, 400)
    found = posterior.fit(rows, totals).posterior(rng)
    flag = found.shares(np.concatenate(rows)[:200], np.concatenate(rows)[-200:]).mean[:, 0]
    assert np.abs(flag).max() < 0.5
    assert found.per_segment[0] == pytest.approx(3.0, abs=0.6)
    mean, variance = found.totals(rows)
    assert np.mean((mean - totals) ** 2) < 0.1 * np.var(totals)
    assert (variance > 0).all()


@pytest.mark.parametrize("totals", [np.zeros(20), np.full(20, 7.0)])
def test_totals_that_are_all_the_same_are_spread_evenly(totals):
    rng = np.random.default_rng(7)
    rows = segments(rng, 20, 10)
    found = posterior.fit(rows, totals).posterior(rng)
    np.testing.assert_allclose(found.expected(rows[0]), totals[0] / 10, atol=1e-6)


def test_odd_rows_are_no_trouble():
    """Constant columns, copies, two values, one step an episode, more than forty dimensions."""
    rng = np.random.default_rng(8)
    wide = rng.normal(size=(300, 45))
    wide[:, 1], wide[:, 2], wide[:, 3] = 5.0, 2 * wide[:, 0] + 1, wide[:, 3] > 0
    rows = np.split(wide, 300)
    found = posterior.fit(rows, 3 * wide[:, 0] + wide[:, 3]).posterior(rng)
    assert np.corrcoef(found.expected(wide), 3 * wide[:, 0] + wide[:, 3])[0, 1] > 0.99


def test_arrays_keep_all_of_it():
    rng = np.random.default_rng(9)
    rows = segments(rng, 30)
    found = posterior.fit(rows, np.array([each[:, 1].sum() for each in rows])).posterior(rng)
    again = Posterior.of(found.arrays())
    np.testing.assert_array_equal(again.rewards(rows[0]), found.rewards(rows[0]))


def test_steps_far_out_earn_what_a_line_says() -> None:
    """Steps of heavy tails earn the most: were values cut off, the rest of it would fall to other steps."""
    rng = np.random.default_rng(4)
    rows = [rng.standard_t(2.5, size=(20, 3)) for _ in range(120)]
    truth = np.concatenate(rows) @ [1.0, 0.0, -2.0]
    assert np.abs(truth).max() > 10 * truth.std()
    found = posterior.fit(rows, np.array([x.sum() for x in np.split(truth, 120)])).posterior(rng)
    far = np.abs(truth) > 5 * truth.std()
    np.testing.assert_allclose(found.expected(np.concatenate(rows))[far], truth[far], rtol=0.02)
    extremes = np.stack([np.concatenate(rows).max(axis=0), np.full(3, 1e30)])
    assert np.ptp(found.expected(extremes)) == 0  # nothing is known of what is farther than anything seen
