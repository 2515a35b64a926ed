"""Summed features of every dimension, alone and in products, in the shape that evidence is taken from."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.graph.evidence import Columns, Remainder
from apportion.graph.features import UNIVARIATE, Dictionary, Floats, batches
from apportion.graph.refine import Fit
from apportion.graph.ridge import Spectrum
from apportion.graph.screen import Segments

Dims = NDArray[np.int64]


class Candidates:
    """What may have an effect: the columns of each dimension, and which others it is multiplied with."""

    def __init__(self, segments: Segments, dictionary: Dictionary, sums: Floats, found: Dims) -> None:
        """`sums` are the dictionary's; where it has no products, those of the dimensions found are added."""
        owners = dictionary.owners
        if not len(dictionary.pairs) and len(found):
            more, pairs = _products(segments, found)
            sums, owners = np.concatenate([sums, more], axis=1), np.concatenate([owners, pairs])
        self.columns = Columns.of(sums, segments.offsets)
        self.sums = sums
        self.owners = owners
        self._singles = len(dictionary.scale.dims) * UNIVARIATE

    @cached_property
    def _alive(self) -> NDArray[np.bool_]:
        return np.any(self.columns.unit != 0, axis=0)

    @cached_property
    def _alone(self) -> dict[int, Dims]:
        first = self.owners[: self._singles : UNIVARIATE, 0]
        columns = np.arange(self._singles).reshape(-1, UNIVARIATE)
        return {int(dim): mine[self._alive[mine]] for dim, mine in zip(first, columns, strict=True)}

    @cached_property
    def _multiplied(self) -> dict[int, tuple[Dims, Dims]]:
        """For each dimension the columns of its products, and the partner in each of them."""
        columns = self._singles + np.flatnonzero(self._alive[self._singles :])
        first, second = self.owners[columns].T
        ends = np.concatenate([first, second])
        order = np.argsort(ends, kind="stable")
        partners, twice = np.concatenate([second, first])[order], np.tile(columns, 2)[order]
        if not len(order):
            return {}
        dims, starts = np.unique(ends[order], return_index=True)
        parts = zip(np.split(twice, starts[1:]), np.split(partners, starts[1:]), strict=True)
        return dict(zip(dims.tolist(), parts, strict=True))

    def alone(self, team: Dims) -> Dims:
        """Columns of functions of these dimensions."""
        return np.concatenate([self._alone[int(dim)] for dim in team])

    def products(self, team: Dims, partners: NDArray[np.bool_]) -> Dims:
        """Columns of their products with partners: [D] True for each that is one."""
        allowed = partners.copy()
        allowed[team] = False
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        parts = [self._multiplied.get(int(dim), nothing) for dim in team]
        return np.concatenate([columns[allowed[others]] for columns, others in parts])

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
        end = 0
        for rows in batch:
            start, end = end, end + len(rows)
            parts.append((z[start:end, place].T @ z[start:end]).ravel())
    pairs = np.stack([np.repeat(found, len(dims)), np.tile(dims, len(found))], axis=1)
    twice = np.isin(pairs[:, 1], found) & (pairs[:, 1] < pairs[:, 0])
    new = (pairs[:, 0] != pairs[:, 1]) & ~twice
    return np.stack(parts)[:, new], pairs[new]


class Known(NamedTuple):
    """What has been found to feed the reward: summed features, and which dimensions each looks at."""

    sums: Floats  # [E, F]
    owners: NDArray[np.bool_]  # [D, F]

    @classmethod
    def of(cls, fit: Fit) -> "Known":
        owners = np.zeros((len(fit.basis.scale.live), fit.sums.shape[1]), np.bool_)
        owners[fit.basis.dims] = fit.basis.owners
        return cls(fit.sums, owners)

    @property
    def found(self) -> NDArray[np.bool_]:
        """[D] the dimensions."""
        return np.asarray(self.owners.any(axis=1))

    def also(self, candidates: Candidates, team: Dims) -> "Known":
        """With functions of these dimensions."""
        columns = candidates.alone(team)
        owners = np.zeros((len(self.owners), len(columns)), np.bool_)
        owners[team] = True
        sums = np.concatenate([self.sums, candidates.sums[:, columns]], axis=1)
        return Known(sums, np.concatenate([self.owners, owners], axis=1))

    def without(self, team: Dims) -> "Known":
        left = ~self.owners[team].any(axis=0)
        return Known(self.sums[:, left], self.owners[:, left])

    def remainder(self, segments: Segments, columns: Columns) -> Remainder:
        """What is left of the totals, as it bears on some columns."""
        spectrum = Spectrum.of(self.sums, segments.offsets)
        return Remainder.of(columns, spectrum, segments.totals, spectrum.fit(segments.totals).penalty)
