"""The data of a search for the reward's parents: segments, and their features summed."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import UNIVARIATE, Dictionary, Dims
from apportion.graph.features import ROWS, Floats, Scale, evenly, rows_of, together
from apportion.graph.priors import TINY
from apportion.graph.ridge import Offsets


@dataclass(frozen=True, eq=False)
class Segments:
    """Steps, and what they were paid together."""

    rows: list[NDArray[Any]]  # [T, D] of each segment
    totals: Floats  # [E]
    scale: Scale
    ends: NDArray[np.bool_] | None = None  # [E] which of them ended by themselves, if that is known

    @property
    def count(self) -> int:
        return len(self.totals)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(rows) for rows in self.rows])

    @cached_property
    def offsets(self) -> Offsets:
        return Offsets.of(self.lengths, self.ends)

    @cached_property
    def variance(self) -> float:
        """Of the totals, but for offsets; never zero, so that shares of it can be taken."""
        return max(float(np.mean(self.offsets.remove(self.totals) ** 2)), TINY)

    def alike(self, dims: Dims) -> Dims:
        """What shares more than half of its variance over steps with one of these dimensions."""
        return np.intersect1d(np.flatnonzero(self._together[:, dims].any(axis=1)), self.scale.dims)

    @cached_property
    def _together(self) -> NDArray[np.bool_]:
        return together(rows_of(self.rows, evenly(ROWS, int(self.lengths.sum()))))

    @cached_property
    def columns(self) -> "Columns":
        """All features in which parents are looked for."""
        return Columns.of(self, Dictionary.over(self.scale))

    def columns_beside(self, found: Dims) -> "Columns":
        """The same; where they have no products, with those of the dimensions found."""
        if self.columns.dictionaries[0].products or not len(found):
            return self.columns
        more = Columns.of(self, Dictionary.of_products(self.scale, found))
        both = (np.concatenate(each, axis=-1) for each in zip(self.columns.arrays, more.arrays, strict=True))
        return Columns(self.columns.dictionaries + more.dictionaries, *both)


@dataclass(frozen=True, eq=False)
class Columns:
    """Summed features, and whose they are, in the shape that evidence is taken from."""

    dictionaries: tuple[Dictionary, ...]  # in which they are, one after the other
    sums: Floats  # [E, P]
    owners: NDArray[np.int64]  # [2, P] the dimensions of each; twice the same where there is but one
    unit: Floats  # [E, P] sums without what offsets explain, of length 1; 0 where nothing is left
    per_sum: Floats  # [P] what they were multiplied with

    @classmethod
    def of(cls, segments: Segments, dictionary: Dictionary) -> "Columns":
        sums, looks_at = dictionary.sums(segments.rows), dictionary.owners
        owners = np.stack([looks_at.argmax(axis=0), len(looks_at) - 1 - looks_at[::-1].argmax(axis=0)])
        return cls((dictionary,), sums, owners, *segments.offsets.normalised(sums))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.sums, self.owners, self.unit, self.per_sum

    def alone(self, team: Dims) -> Dims:
        """Columns of functions of one of these dimensions."""
        mine = self._of(team)
        first, second = self.owners[:, mine]
        return mine[first == second]

    def products(self, team: Dims, partners: NDArray[np.bool_]) -> Dims:
        """Columns of their products with partners: [D] True for each that is one."""
        mine, others = self._of(team), partners.copy()
        others[team] = False
        return mine[others[self.owners[:, mine]].any(axis=0)]

    def _of(self, team: Dims) -> Dims:
        """All columns that look at one of these dimensions."""
        return self._of_teams[self.dictionaries[0].scale.team_places[team[0]]]

    @cached_property
    def _of_teams(self) -> list[Dims]:
        teams = self.dictionaries[0].scale.teams
        return [np.flatnonzero(np.isin(self.owners, team).any(axis=0) & (self.per_sum > 0)) for team in teams]

    def families(self, team: Dims, partners: NDArray[np.bool_]) -> list[Dims]:
        """A line, a parabola, any curve, any curve and products with partners."""
        alone, products = self.alone(team), self.products(team, partners)
        kind = alone % UNIVARIATE
        blocks = [alone[kind == 0], alone[kind == 1], alone]
        return blocks if not len(products) else [*blocks, np.concatenate([alone, products])]
