"""How much do the totals speak for or against an effect of a dimension, beside what others explain?

What the others explain is a ridge regression, which is a Gaussian prior on their part: the totals are
y ~ N(Z c, σ² M⁻¹) with M = 1 - (the ridge's hat matrix) and Z the dimension's own summed features. All the
data say about c is A = ZᵀMZ and b = ZᵀMy/σ. Against c = 0, an effect c has the likelihood ratio
exp(bᵀc - cᵀAc/2) with c in units of σ; averaged over the effects that are possible this is a Bayes factor.
A dimension that moves with those found has a small A: the data say little, and the ratio stays near 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import NUMBERS_AT_ONCE, Floats
from apportion.graph.priors import MISFIT, ROUNDED, TINY
from apportion.graph.ridge import Spectrum

_SIZES = 2.0 ** -np.arange(np.floor(-np.log2(MISFIT)) + 1)  # shares that an effect of unknown size may have
_LEFT = MISFIT**2  # of the curvature of features that others say all of


class Remainder(NamedTuple):
    """Totals beside what a fit explains, as it bears on some features."""

    signal: float  # n Var(R) / σ²: what an effect worth everything would be
    unit: Floats  # [E, P] summed features, as segments.Columns has them
    kept: Floats  # [K, P] features along the fit's directions, times the root of what it takes out
    linear: Floats  # [P] b = ZᵀMy/σ
    curvature: Floats  # [P] diagonal of A

    @classmethod
    def of(cls, unit: Floats, spectrum: Spectrum, totals: Floats) -> "Remainder":
        y = spectrum.offsets.remove(totals)
        taken = 1 - spectrum.kept_back(spectrum.fit(totals).penalty)
        left = y - spectrum.directions @ (taken * (spectrum.directions.T @ y))
        free = max(len(y) - spectrum.offsets.basis.shape[1] - float(taken.sum()), 1.0)
        variance = max(float(left @ left) / free, MISFIT * float(np.mean(y**2)), TINY)
        kept = np.sqrt(taken)[:, None] * (spectrum.directions.T @ unit)
        alive = np.any(unit != 0, axis=0)
        return cls(
            signal=float(y @ y) / variance,
            unit=unit,
            kept=kept,
            linear=unit.T @ left / np.sqrt(variance),
            curvature=np.where(alive, np.maximum(1 - np.sum(kept**2, axis=0), _LEFT), 0.0),
        )

    def against(self, least: float | Floats) -> Floats:
        """[P] log ratio of an effect along each feature alone that is worth at least `least` (which may be
        another for each) to none: of either sign, worth `least`, twice that, ..., all of the variance."""
        least = np.broadcast_to(least, self.linear.shape)
        doublings = np.floor(np.log2(1 / least))
        steps = np.arange(doublings.max(initial=0.0) + 1)[:, None]
        size = np.sqrt(least * 2.0**steps * self.signal)
        push = np.abs(size * self.linear)
        cosh = push + np.log1p(np.exp(-2 * push)) - np.log(2)
        logs = np.where(steps <= doublings, cosh - size**2 * self.curvature / 2, -np.inf)
        return log_mean(logs) + (np.log(len(steps)) - np.log(doublings + 1))  # the others are no effects

    def for_effects(self, families: Sequence[Sequence[NDArray[np.int64]]]) -> Floats:
        """For each family of blocks of features, the log ratio of an effect of unknown size in one of its
        blocks to none."""
        blocks = [block for family in families for block in family if len(block)]
        owners = [number for number, family in enumerate(families) for block in family if len(block)]
        ratios = np.full(len(families), -np.inf)
        np.logaddexp.at(ratios, owners, self._gaussian(blocks))
        return ratios - np.log(np.maximum(np.bincount(owners, minlength=len(families)), 1))

    def for_any(self) -> float:
        """Log ratio of an effect in all features together, or in any one of them, to none."""
        every = np.arange(len(self.linear))
        return float(log_mean(self.for_effects([[every], [*every[:, None]]])))

    def share(self, block: NDArray[np.int64]) -> tuple[float, float]:
        """Of the variance: what the best fit of these features takes, less what chance would give it, and its
        standard error, from the variance 2 (K + 2δ) of a noncentral χ²."""
        curvature, axes = np.linalg.eigh(self._block(block))
        clear = curvature > ROUNDED
        taken = np.sum((axes.T @ self.linear[block])[clear] ** 2 / curvature[clear]) - clear.sum()
        error = np.sqrt(2 * (clear.sum() + 2 * max(taken, 0.0)))
        signal = max(self.signal, TINY)
        return float(np.clip(taken / signal, 0.0, 1.0)), float(error / signal)

    def _gaussian(self, blocks: list[NDArray[np.int64]]) -> Floats:
        """For each block c ~ N(0, g): the ratio is |1 + gA|^(-1/2) exp(g bᵀ(1 + gA)⁻¹b / 2), averaged over g.
        Blocks of a size together, for there are many and each is small."""
        ratios, sizes = np.zeros(len(blocks)), np.array([len(block) for block in blocks], np.int64)
        for size in np.unique(sizes):
            alike = np.flatnonzero(sizes == size)
            numbers = len(alike) * size * len(self.unit)
            for some in np.array_split(alike, min(len(alike), 1 + numbers // NUMBERS_AT_ONCE)):
                features = np.stack([blocks[k] for k in some])
                curvature, axes = np.linalg.eigh(self._block(features))
                curvature = np.maximum(curvature, 0.0)
                linear = np.sum(axes * self.linear[features][:, :, None], axis=1)
                spread = _SIZES[:, None, None] * self.signal / size
                ratios[some] = log_mean(_gaussian(linear, curvature, spread).sum(axis=2))
        return ratios

    def _block(self, block: NDArray[np.int64]) -> Floats:
        """ZᵀMZ of a block of features [K], or of many blocks [..., K]."""
        z, kept = self.unit.T[block], self.kept.T[block]
        return z @ z.swapaxes(-1, -2) - kept @ kept.swapaxes(-1, -2)


def _gaussian(linear: Floats, curvature: Floats, spread: Floats) -> Floats:
    """Log ratio of an effect c ~ N(0, spread) along directions that tell nothing of each other, to none."""
    return -np.log1p(spread * curvature) / 2 + spread * linear**2 / (1 + spread * curvature) / 2


def log_mean(logs: Floats) -> Floats:
    """The log of the mean of what these are the logs of, over the first axis: plain, for it runs often."""
    most = logs.max(axis=0)
    return np.asarray(most + np.log(np.mean(np.exp(logs - most), axis=0)))
