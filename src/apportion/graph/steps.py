"""What may be worth little in the totals and much in single steps.

Over an episode swings cancel out: a leg that moves back and forth hardly changes a total, though it may
decide what each step earns. So what is worth less than some share of the totals' variance may be worth more
than that share of the steps'. Here is how much more.
"""

from typing import NamedTuple

import numpy as np

from apportion.graph.candidates import Candidates, Dims
from apportion.graph.features import UNIVARIATE, Dictionary, Floats, evenly, rows_of
from apportion.graph.model import RewardModel
from apportion.graph.screen import Segments

ROWS = 2000  # steps that variances are taken from
MOST = 1e6  # times as much as in the totals: beyond, totals tell nothing of a step


class Steps(NamedTuple):
    """Features of some steps. The squares of a column add up to the share of the steps' variance that its
    effect has, divided by the effect's share of the totals' variance; and so for sums of columns."""

    alone: Floats  # [N, K] of one dimension
    products: Floats  # [P - K] those of two: their squares, added up

    @classmethod
    def of(
        cls, segments: Segments, dictionary: Dictionary, candidates: Candidates, model: RewardModel
    ) -> "Steps":
        """Rewards of steps vary as those of the model do."""
        rows = rows_of(segments.rows, evenly(ROWS, int(segments.lengths.sum())))
        alone = Dictionary(dictionary.scale, dictionary.pairs[:0]).features(rows)
        z = alone[:, ::UNIVARIATE]
        first, second = np.searchsorted(dictionary.scale.dims, candidates.owners[alone.shape[1] :]).T
        moments = (z**2).T @ z**2 - (z.T @ z) ** 2 / len(rows)
        paid = np.sqrt(segments.count * segments.variance)
        varied = max(np.sqrt(len(rows)) * float(np.std(model.predict(rows))), 1e-9 * paid)
        unit = paid / varied * candidates.columns.per_sum
        return cls(
            (alone - alone.mean(axis=0)) * unit[: alone.shape[1]],
            moments[first, second] * unit[alone.shape[1] :] ** 2,
        )

    def least(self, share: float) -> Floats:
        """[P] the share of the totals' variance that the effect of a column has which is worth this share of
        the totals' variance, or of the steps', whatever is less."""
        return _in_totals(share, np.concatenate([np.sum(self.alone**2, axis=0), self.products]))

    def least_of_mixtures(self, share: float, columns: Dims, mixtures: Floats, lengths: Floats) -> Floats:
        """[M] the same for combinations [M, K] of columns that are functions of one dimension each, whose
        sums over segments have these lengths."""
        together = self.alone[:, columns] @ mixtures.T / lengths
        return _in_totals(share, np.sum(together**2, axis=0))


def _in_totals(share: float, ratios: Floats) -> Floats:
    return share / np.clip(ratios, 1.0, MOST)
