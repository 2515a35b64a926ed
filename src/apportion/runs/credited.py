"""Who earned the credit that the posterior gives: Shapley values in closed form, with what is not known."""

import numpy as np
from numpy.typing import NDArray

from apportion.graph.posterior import Shares, spread
from apportion.runs.credit import Credit, as_rows
from apportion.runs.explain import Explanation, Steps

Doubles = NDArray[np.float64]


def by_posterior(credit: Credit, steps: Steps, background: Steps, owners: NDArray[np.int64]) -> Explanation:
    """Contributions at each step; entries of a one-hot vector [D] have the same owner."""
    found, rows, behind = credit.posterior, _rows(steps), _rows(background)
    whole = _owned(found.shares(rows, behind), owners)
    # Two halves of the background tell how far another one would move them.
    halves = [_owned(found.shares(rows, behind[first::2]), owners) for first in (0, 1)]
    moved = (halves[0].mean - halves[1].mean) / 2
    read = found.features.used[np.unique(found.features.dims[found.features.dims >= 0])] % len(found.matters)
    return Explanation(
        contributions=whole.mean,
        standard_errors=np.abs(moved),
        mean_errors=np.abs(moved.mean(axis=0)),
        redistributed=found.expected(rows),
        baseline=float(found.expected(behind).mean()),
        background=len(behind),
        players=np.isin(np.arange(int(owners.max()) + 1), owners[read[read < len(owners)]]),
        exact=True,
        deviations=credit.widening * np.sqrt(whole.variance),
        mean_deviations=credit.widening * np.sqrt(spread(whole.average)),
    )


def mixed(credit: Credit, known: Explanation, learned: Explanation) -> Explanation:
    """Of the posterior's credit and the method's, as they count; what they differ by is doubt."""
    share, rest = credit.share, 1 - credit.share
    apart = learned.contributions - known.contributions
    assert known.deviations is not None
    assert known.mean_deviations is not None
    return Explanation(
        contributions=known.contributions + rest * apart,
        standard_errors=share * known.standard_errors + rest * learned.standard_errors,
        mean_errors=share * known.mean_errors + rest * learned.mean_errors,
        redistributed=share * known.redistributed + rest * learned.redistributed,
        baseline=share * known.baseline + rest * learned.baseline,
        background=learned.background,
        players=known.players | learned.players if share > 0 else learned.players,
        exact=learned.exact,
        deviations=np.sqrt(known.deviations**2 + rest * apart**2),
        mean_deviations=np.sqrt(known.mean_deviations**2 + rest * apart.mean(axis=0) ** 2),
    )


def _rows(steps: Steps) -> Doubles:
    """[N, 2 S + A + 1]; none of them is an end."""
    end = np.zeros((len(steps.actions), 1))
    return as_rows(steps.observations, steps.actions, end, steps.next_observations)


def _owned(shares: Shares, owners: NDArray[np.int64]) -> Shares:
    """Of owners instead of entries; nobody owns an end."""
    belongs = np.zeros((len(owners) + 1, int(owners.max()) + 1))
    belongs[np.arange(len(owners)), owners] = 1.0
    return Shares(shares.mean @ belongs, shares.variance @ belongs, belongs.T @ shares.average)
