"""Which dimensions tell that an episode ends by itself. An end takes all later rewards away, so the policy
has to see it coming, even where none of these dimensions feeds the reward."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.features import CLIP, ROWS, Floats, evenly, rows_of, varies
from apportion.graph.priors import ROUNDING

FEWEST = 30  # ends; fewer cannot be told from chance
SIGNIFICANT = 0.001  # over all dimensions, and over all pairs of them
MAX_OTHERS = 5 * ROWS  # states to compare with


class Endings(NamedTuple):
    """What is known of the ends so far: enough to go on from when they have left the memory of episodes."""

    matters: NDArray[np.bool_]  # [S] dimensions that tell of an end
    ends: int  # that this was learnt from, at most in one look

    @classmethod
    def unknown(cls, states: int) -> "Endings":
        """Before any end was seen."""
        return cls(np.zeros(states, np.bool_), 0)

    @property
    def enough(self) -> bool:
        return self.ends >= FEWEST

    def remember(self, later: "Endings") -> "Endings":
        """With what a later look has found: what matters once matters for good. A look at a few ends, where
        everything may matter, adds nothing to one at many, and counts for nothing after one."""
        if self.enough and not later.enough:
            return self
        if later.enough and not self.enough:
            return later
        return Endings(self.matters | later.matters, max(self.ends, later.ends))


def find_endings(observations: list[NDArray[Any]], terminated: NDArray[np.bool_]) -> Endings:
    """Dimensions whose values where an episode ended are distributed unlike elsewhere (two-sample
    Kolmogorov-Smirnov test), and pairs that move together unlike elsewhere, as at a collision, |x - y| < ε.
    From segments: observations [T+1, S] of each, and whether it ended by itself.

    None where nothing ended, all where too little did. More than the causes is found: what moves with a cause
    differs, too. For a policy, seeing too much is the smaller mistake.
    """
    from scipy import stats  # here, for every command would wait most of a second for it

    states = observations[0].shape[1]
    last = [each[-1] for each, end in zip(observations, terminated, strict=True) if end]
    if len(last) < FEWEST:
        return Endings(np.full(states, len(last) > 0), len(last))
    before = [each[:-1] for each in observations]
    ends, others = np.stack(last), rows_of(before, evenly(MAX_OTHERS, sum(map(len, before))))
    level = SIGNIFICANT / states
    alone = [stats.ks_2samp(ends[:, d], others[:, d], method="asymp").pvalue < level for d in range(states)]
    return Endings(np.array(alone) | _together(ends, others), len(last))


def _together(ends: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """[S] dimensions in a pair whose covariance where an episode ended differs from that elsewhere, by a
    t-test of the products."""
    low, high = (np.asarray(edge(others, axis=0), np.float64) for edge in (np.min, np.max))
    live = varies(low, high)
    mean, std = others.mean(axis=0, dtype=np.float64), others.std(axis=0, dtype=np.float64)
    z = [np.clip((x - mean) / np.where(live, std, 1.0), -CLIP, CLIP) * live for x in (ends, others)]
    (first, of_first), (second, of_second) = (_covariance(each - each.mean(axis=0)) for each in z)
    t = (first - second) / np.sqrt(np.maximum(of_first + of_second, ROUNDING))
    chance = 2 * special.stdtr(len(ends) - 1, -np.abs(t))
    different = chance < SIGNIFICANT / max(len(live) * (len(live) - 1) / 2, 1)
    np.fill_diagonal(different, val=False)
    return np.asarray(different.any(axis=1))


def _covariance(z: Floats) -> tuple[Floats, Floats]:
    """Of centred rows [N, S]: mean products [S, S], and their squared standard errors."""
    mean = z.T @ z / len(z)
    return mean, ((z**2).T @ z**2 / len(z) - mean**2) / max(len(z) - 1, 1)
