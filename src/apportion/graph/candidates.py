"""Summed features of every dimension, alone and in products, in the shape that evidence is taken from."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apportion.graph.evidence import Columns, Remainder
from apportion.graph.features import UNIVARIATE, Dictionary, Floats, batches
from apportion.graph.refine import Fit
from apportion.graph.ridge import Spectrum
from apportion.graph.screen import Segments

Dims = NDArray[np.int64]


class Candidates(NamedTuple):
    """What may have an effect: the columns of each dimension, and which others it is multiplied with."""

    columns: Columns
    sums: Floats  # [E, P]
    owners: NDArray[np.int64]  # [P, 2] the dimensions of each column; twice the same where there is but one
    alive: NDArray[np.bool_]  # [P] where offsets do not explain all

    @classmethod
    def of(
        cls, segments: Segments, dictionary: Dictionary, sums: Floats, columns: Columns, found: Dims
    ) -> Self:
        """From the dictionary's sums; where it has no products, those of the dimensions found are added."""
        owners = dictionary.owners
        if not len(dictionary.pairs) and len(found):
            more, pairs = _products(segments, found)
            sums, owners = np.concatenate([sums, more], axis=1), np.concatenate([owners, pairs])
            others = Columns.of(more, segments.offsets)
            columns = Columns(*(np.concatenate(each, axis=-1) for each in zip(columns, others, strict=True)))
        return cls(columns, sums, owners, columns.per_sum > 0)

    def alone(self, team: Dims) -> Dims:
        """Columns of functions of these dimensions."""
        first, second = self.owners.T
        return np.flatnonzero(np.isin(first, team) & (first == second) & self.alive)

    def products(self, team: Dims, partners: NDArray[np.bool_]) -> Dims:
        """Columns of their products with partners: [D] True for each that is one."""
        (first, second), mine = self.owners.T, np.zeros_like(partners)
        mine[team] = True
        others = partners & ~mine
        return np.flatnonzero(((mine[first] & others[second]) | (mine[second] & others[first])) & self.alive)

    def families(self, team: Dims, partners: NDArray[np.bool_]) -> list[Dims]:
        """A line, a parabola, any curve, any curve and products with partners."""
        alone, products = self.alone(team), self.products(team, partners)
        kind = alone % UNIVARIATE
        blocks = [alone[kind == 0], alone[kind == 1], alone]
        return blocks if not len(products) else [*blocks, np.concatenate([alone, products])]


def _products(segments: Segments, found: Dims) -> tuple[Floats, NDArray[np.int64]]:
    """Σ_t z_i z_j of each segment, for i among those found and any other j; and all (i, j)."""
    dims = segments.scale.dims
    place = np.searchsorted(dims, found)
    parts = []
    for batch in batches(segments.rows, 4 * len(dims)):
        z = segments.scale.standardise(np.concatenate(batch))
        ends = np.cumsum([len(rows) for rows in batch])
        parts += [(part[:, place].T @ part).ravel() for part in np.split(z, ends[:-1])]
    pairs = np.stack([np.repeat(found, len(dims)), np.tile(dims, len(found))], axis=1)
    twice = np.isin(pairs[:, 1], found) & (pairs[:, 1] < pairs[:, 0])
    new = (pairs[:, 0] != pairs[:, 1]) & ~twice
    return np.stack(parts)[:, new], pairs[new]


class Known(NamedTuple):
    """What has been found to feed the reward: summed features, and which dimensions each looks at."""

    sums: Floats  # [E, F]
    owners: NDArray[np.bool_]  # [D, F]

    @classmethod
    def of(cls, fit: Fit) -> Self:
        owners = np.zeros((len(fit.basis.scale.live), fit.sums.shape[1]), np.bool_)
        owners[fit.basis.dims] = fit.basis.owners
        return cls(fit.sums, owners)

    @property
    def found(self) -> NDArray[np.bool_]:
        """[D] the dimensions."""
        return np.asarray(self.owners.any(axis=1))

    def also(self, candidates: Candidates, team: Dims) -> Self:
        """With functions of these dimensions."""
        columns = candidates.alone(team)
        owners = np.zeros((len(self.owners), len(columns)), np.bool_)
        owners[team] = True
        sums = np.concatenate([self.sums, candidates.sums[:, columns]], axis=1)
        return type(self)(sums, np.concatenate([self.owners, owners], axis=1))

    def without(self, team: Dims) -> Self:
        left = ~self.owners[team].any(axis=0)
        return type(self)(self.sums[:, left], self.owners[:, left])

    def remainder(self, segments: Segments, columns: Columns) -> Remainder:
        """What is left of the totals, as it bears on some columns."""
        spectrum = Spectrum.of(self.sums, segments.offsets)
        return Remainder.of(columns, spectrum, segments.totals, spectrum.fit(segments.totals).penalty)
