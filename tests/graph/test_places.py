"""Who has a place in the reward, and how sure that is."""

import numpy as np
import pytest

from apportion.graph import identify
from apportion.graph.places import Place
from apportion.graph.refine import gaussian_ratio
from apportion.graph.ridge import Ridge


def predictions(errors: np.ndarray) -> Ridge:
    return Ridge(np.zeros(0), 0.0, 0.0, 0.0, errors, 0.0)


def plain_ratio(without: Ridge, whole: Ridge) -> float:
    return len(whole.errors) / 2 * float(np.log(without.error / whole.error))


def test_gaussian_errors_have_the_plain_ratio() -> None:
    """σ² grows to σ² + τ², so that n/2 log(1 + τ²/σ²) is n τ²/2σ²; the squares differ by τ², with a standard
    error of 2στ/√n, so that 2z² is the same."""
    rng = np.random.default_rng(0)
    errors = rng.normal(size=200_000)
    without, whole = predictions(errors + 0.1 * rng.normal(size=errors.shape)), predictions(errors)
    assert gaussian_ratio(without, whole) == pytest.approx(plain_ratio(without, whole), rel=0.1)


def test_a_few_totals_that_are_missed_by_much_have_little_to_say() -> None:
    errors = np.random.default_rng(1).normal(size=400)
    worse = errors.copy()
    worse[:2] += 30.0
    without, whole = predictions(worse), predictions(errors)
    assert plain_ratio(without, whole) > 300
    assert gaussian_ratio(without, whole) < 10


def test_a_place_changes_hands_only_where_it_is_clearly_anothers() -> None:
    this, other = np.array([0]), np.array([1])
    assert not Place(this, 0.99, np.array([0.45, 0.55]), [other]).leaves
    assert Place(this, 0.99, np.array([0.1, 0.9]), [other]).leaves
    assert Place(this, 0.4, np.array([1.0]), []).leaves


@pytest.mark.parametrize("seed", [0, 2])
def test_a_reading_that_is_nearly_another_takes_nothing_from_others(seed: int) -> None:
    """Of the two one feeds the reward. Where they changed places, with plain features for the newcomer, what
    these missed was given to strangers."""
    rng, episodes, steps = np.random.default_rng(seed), 300, 20
    states = rng.normal(size=(episodes, steps + 1, 4))
    for t in range(steps):
        states[:, t + 1] = 0.7 * (states[:, t] + states[:, t + 1])
    again = states[:, :, :1] + 0.01 * rng.normal(size=(episodes, steps + 1, 1))
    first, second = states[:, :-1, 0], states[:, :-1, 1]
    totals = (np.sin(2 * first + 0.5) * second + np.abs(first)).sum(axis=1)
    shown = np.concatenate([states, again], axis=2)
    found = identify(list(shown), list(rng.normal(size=(episodes, steps, 1))), totals)
    verdicts = [str(each) for each in found.verdict.state_to_reward]
    assert verdicts == ["undecided", "present", "absent", "absent", "undecided"]
    assert found.groups == [(0, 4)]
