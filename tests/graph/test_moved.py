"""What moves a parent of the reward may feed the reward in its stead."""

import numpy as np
import pytest

from apportion.graph import Identification, identify

EPISODES, STEPS = 200, 80


def logged(
    seed: int, lag: float, noise: float
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Observations and actions of episodes, and the product of the first three dimensions in each step. The
    fourth follows that product with a lag, and noise of its own; two more are strangers."""
    rng = np.random.default_rng(seed)
    observations, actions, products = [], [], []
    for _ in range(EPISODES):
        level = rng.uniform(0.5, 1.5, 3)  # at which an episode is held
        states = np.zeros((STEPS + 1, 6))
        states[0, :3], states[0, 4:] = level, rng.normal(size=2)
        for t in range(STEPS):
            before = states[t]
            states[t + 1, :3] = before[:3] + 0.3 * (level - before[:3]) + 0.1 * rng.normal(size=3)
            product = np.prod(before[:3])
            states[t + 1, 3] = (1 - lag) * before[3] + lag * product + noise * rng.normal()
            states[t + 1, 4:] = 0.7 * before[4:] + rng.normal(size=2)
        observations.append(states)
        actions.append(rng.normal(size=(STEPS, 1)))
        products.append(np.prod(states[:-1, :3], axis=1))
    return observations, actions, products


def verdicts(found: Identification) -> list[str]:
    return [str(each) for each in found.verdict.state_to_reward]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_moves_a_gauge_that_totals_go_with_is_not_absent(seed: int) -> None:
    observations, actions, products = logged(seed, lag=0.4, noise=0.02)
    noise = np.random.default_rng(seed).normal(size=EPISODES)
    totals = np.array([each.sum() for each in products]) + 5.0 * noise
    found = identify(observations, actions, totals)
    assert verdicts(found) == ["undecided"] * 3 + ["present"] + ["absent"] * 2
    assert found.confidence.state_to_reward[3] <= 0.9
    assert found.nowhere[:6].tolist() == [False] * 4 + [True] * 2
    assert "totals do not tell 1 of 1 dimensions found from what moves them" in found.certificate.scope


@pytest.mark.parametrize("last_known", [True, False])
def test_what_moves_a_parent_is_absent_where_totals_tell(last_known: bool) -> None:
    observations, actions, _ = logged(2, lag=0.4, noise=0.5)
    totals = np.array([states[:-1, 3].sum() for states in observations])
    if not last_known:
        observations = [states[:-1] for states in observations]
    found = identify(observations, actions, totals)
    assert verdicts(found) == ["absent"] * 3 + ["present"] + ["absent"] * 2
    assert "totals do not tell" not in found.certificate.scope


def test_a_one_hot_vector_is_moved_as_a_whole() -> None:
    """Each of its entries is what the others are not, so that none is missed alone."""
    rng = np.random.default_rng(3)
    kinds = np.eye(3)[rng.integers(3, size=(EPISODES, 11))]
    drifts = np.cumsum(rng.normal(size=(EPISODES, 11, 1)), axis=1)
    observations = list(np.concatenate([drifts, kinds], axis=2))
    totals = kinds[:, :-1, 1].sum(axis=1) + 0.1 * rng.normal(size=EPISODES)
    found = identify(observations, list(rng.normal(size=(EPISODES, 10, 1))), totals)
    assert verdicts(found) == ["absent"] + ["present"] * 3
    assert np.all(found.confidence.state_to_reward[1:] > 0.95)
