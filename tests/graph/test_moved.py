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


def followed(observations: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """With a gauge beside the others that follows the fourth."""
    rng, shown = np.random.default_rng(seed), []
    for states in observations:
        gauge = np.zeros((len(states), 1))
        for t in range(len(states) - 1):
            gauge[t + 1] = 0.5 * gauge[t] + 0.5 * states[t, 3] + 0.02 * rng.normal()
        shown.append(np.concatenate([states, gauge], axis=1))
    return shown


def metered(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three states, a meter that adds up the first of them, and a clock [E, T+1, 5]; and actions."""
    rng, steps = np.random.default_rng(seed), 25
    states = rng.normal(size=(EPISODES, steps + 1, 3))
    for t in range(steps):
        states[:, t + 1] = 0.7 * (states[:, t] + states[:, t + 1])
    meter = np.cumsum(states[:, :, :1], axis=1) - states[:, :, :1]
    clock = np.broadcast_to(np.arange(steps + 1.0)[None, :, None], meter.shape)
    return np.concatenate([states, meter, clock], axis=2), rng.normal(size=(EPISODES, steps, 1))


def paid(*terms: np.ndarray) -> np.ndarray:
    """Totals of terms [E, T+1] of equal weight."""
    sums = [term[:, :-1].sum(axis=1) for term in terms]
    return np.sum([each / each.std() for each in sums], axis=0)


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
    assert not found.nowhere[:4].any()
    assert found.nowhere[4:6].any()
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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_gauge_of_a_gauge_is_not_beyond_doubt(seed: int) -> None:
    """It explains what the first one misses of the product, though neither feeds the reward."""
    observations, actions, products = logged(seed, lag=0.4, noise=0.02)
    totals = np.array([each.sum() for each in products])
    found = identify(followed(observations, seed), actions, totals)
    assert verdicts(found)[:3] == ["undecided"] * 3
    assert found.confidence.state_to_reward[6] <= 0.9


@pytest.mark.parametrize("seed", [0, 1])
def test_a_meter_beside_a_clock_and_what_it_adds_up(seed: int) -> None:
    """Σ c_t = Σ (T - t) x_t: the clock and x explain it as well, to the last digit. It is found beside them
    where a term needs the clock, and not absent where they stand for it; nor is then the clock sure."""
    shown, actions = metered(seed)
    found = identify(list(shown), list(actions), paid(shown[:, :, 3], shown[:, :, 4] * shown[:, :, 1]))
    assert verdicts(found) == ["absent", "present", "absent", "present", "present"]
    found = identify(list(shown), list(actions), paid(shown[:, :, 3], np.abs(shown[:, :, 0])))
    assert verdicts(found)[:4] == ["present", "absent", "absent", "undecided"]
    assert np.all(found.confidence.state_to_reward[[0, 4]] <= 0.9)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_gauge_of_what_is_not_shown_is_not_beyond_doubt_nor_is_a_clock_that_mends_it(seed: int) -> None:
    """The clock says how much of the beginning the gauge has missed."""
    observations, actions, products = logged(seed, lag=0.1, noise=0.01)
    clock = np.arange(STEPS + 1.0)[:, None]
    shown = [np.concatenate([clock, states[:, 3:]], axis=1) for states in observations]
    found = identify(shown, actions, np.array([each.sum() for each in products]))
    assert found.graph.state_to_reward[1]
    assert np.all(found.confidence.state_to_reward[found.graph.state_to_reward] <= 0.9)
    assert (found.reasons[1].instead, found.reasons[1].chance) == (None, 0.1)
