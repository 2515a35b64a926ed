"""Ridge regression of totals on summed features, with the penalty that exact leave-one-out error prefers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import Floats
from apportion.graph.priors import ROUNDED, ROUNDING, TINY

PENALTIES = 10.0 ** np.arange(-8.0, 3.0)  # as shares of each feature's own variance


class Ridge(NamedTuple):
    """A fit to all segments, and what each segment's total would have missed by without itself."""

    weights: Floats  # [P]
    per_segment: float  # a constant in every total,
    per_step: float  # one in every step,
    per_end: float  # and one in every total whose segment ended by itself
    errors: Floats  # [E] leave-one-out
    penalty: float

    @property
    def error(self) -> float:
        return float(np.mean(self.errors**2))


class Offsets(NamedTuple):
    """What every total may contain besides features: a constant per step, a constant, and what an end by
    itself pays. Without the last, the fine at an early end would fall to whatever tells an episode's length.
    """

    columns: Floats  # [E, 3]; 0 where one tells nothing that those before it do not
    basis: Floats  # [E, 1 to 3] the same, orthonormal

    @classmethod
    def of(cls, lengths: NDArray[Any], ends: NDArray[Any] | None = None) -> "Offsets":
        lengths = np.asarray(lengths, np.float64)
        ends = np.zeros_like(lengths) if ends is None else np.asarray(ends, np.float64)
        columns, basis = np.stack([lengths, np.ones_like(lengths), ends], axis=1), np.zeros((len(lengths), 0))
        for place, column in enumerate(columns.T):
            left = column - basis @ (basis.T @ column)
            size = np.sqrt(left @ left)
            if size > ROUNDED * np.sqrt(column @ column):
                basis = np.column_stack([basis, left / size])
            else:
                columns[:, place] = 0.0
        return cls(columns, basis)

    def remove(self, x: Floats) -> Floats:
        return np.asarray(x - self.basis @ (self.basis.T @ x))

    def normalised(self, sums: Floats) -> tuple[Floats, Floats]:
        """Columns [E, P] without what offsets explain, of length 1, or 0 where nothing is left; and what they
        were multiplied with [P]."""
        left = self.remove(sums)
        length = np.sqrt(np.sum(left**2, axis=0))
        alive = length > ROUNDED * np.sqrt(np.sum(sums**2, axis=0))
        per_sum = np.where(alive, 1 / np.where(alive, length, 1.0), 0.0)
        return left * per_sum, per_sum


class Spectrum(NamedTuple):
    """Summed features by their principal directions: what all penalties and all totals have in common."""

    offsets: Offsets
    sums: Floats  # [E, P]
    scale: Floats  # [P] that brings the features to equal variance; 0 for what offsets explain
    directions: Floats  # [E, K] orthonormal, and orthogonal to the offsets
    variances: Floats  # [K]

    @classmethod
    def of(cls, sums: Floats, offsets: Offsets) -> "Spectrum":
        unit, per_sum = offsets.normalised(sums)
        root = np.sqrt(len(sums))
        return cls(offsets, sums, root * per_sum, *_principal(root * unit))

    def kept_back(self, penalty: float) -> Floats:
        """[K] the share of each direction that the penalty keeps out of the fit."""
        price = len(self.sums) * penalty
        return np.asarray(price / (self.variances + price))

    def fit(self, totals: Floats, penalties: Floats = PENALTIES) -> Ridge:
        """Under the penalty with the least leave-one-out error."""
        directions, y = self.directions, self.offsets.remove(totals)
        along = directions.T @ y
        # Where features outnumber segments, all that keeps a segment from fitting itself is the penalty, and
        # may be as small as 1e-9: it is added up, for 1 minus a leverage near 1 would be rounding.
        beside = 1 - np.sum(self.offsets.basis**2, axis=1)
        outside, known = beside - np.sum(directions**2, axis=1), beside > ROUNDING
        outside, missed = np.where(outside > ROUNDING, outside, 0.0), y - directions @ along
        kept_back = np.stack([self.kept_back(penalty) for penalty in penalties], axis=1)
        slack = np.maximum(outside[:, None] + directions**2 @ kept_back, ROUNDING)
        misses = missed[:, None] + directions @ (kept_back * along[:, None])
        # The only segment of its length, say: offsets follow it whatever it is, so that it tells nothing.
        errors = np.where(known[:, None], misses / slack, 0.0)
        best = int(np.argmin(np.mean(errors**2, axis=0)))
        penalty = float(penalties[best])
        # Weights from the directions: XᵀU (along / (s² + nλ)).
        response = directions @ (along / (self.variances + len(y) * penalty))
        weights = self.scale**2 * (self.offsets.remove(self.sums).T @ response)
        constants = np.linalg.lstsq(self.offsets.columns, totals - self.sums @ weights, rcond=None)[0]
        per_step, per_segment, per_end = map(float, constants)
        return Ridge(weights, per_segment, per_step, per_end, errors[:, best].copy(), penalty)


def ridge(sums: Floats, totals: Floats, offsets: Offsets, penalties: Floats = PENALTIES) -> Ridge:
    """Features [E, P] are scaled to equal variance first; offsets are free."""
    return Spectrum.of(sums, offsets).fit(totals, penalties)


def _principal(x: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors [E, K] and squared singular values [K], by the smaller Gram matrix."""
    # By NumPy, for other lanes' looks go on meanwhile; SciPy's linear algebra lets no other thread run.
    wide = x.shape[0] <= x.shape[1]
    variances, axes = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = variances > ROUNDING * variances.max(initial=TINY)
    variances, axes = variances[kept], axes[:, kept]
    return axes if wide else x @ (axes / np.sqrt(variances)), variances
