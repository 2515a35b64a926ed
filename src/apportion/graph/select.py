"""The first candidates: group orthogonal matching pursuit on summed features of segments.

Forward, the group that lowers an information criterion most enters; then the same test backward.
"""

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import UNIVARIATE, Dictionary
from apportion.graph.features import Floats
from apportion.graph.priors import MISFIT, OF_REST, WORTH
from apportion.graph.segments import Segments

_RIDGE = 1e-6  # of a column's square, that keeps equal columns apart

Block = NDArray[np.int64]


def first_claims(segments: Segments) -> dict[int, float]:
    """The dimensions of the features selected for totals; with the share of their variance that goes with all
    chosen features of each."""
    columns, totals = segments.columns, segments.offsets.remove(segments.totals)
    chosen = _Pursuit(columns.unit, totals, columns.dictionaries[0]).select()
    owners = columns.owners[:, chosen]
    everything = _explained(columns.unit[:, chosen], totals)
    without = {int(dim): chosen[~(owners == dim).any(axis=0)] for dim in np.unique(owners)}
    return {dim: everything - _explained(columns.unit[:, left], totals) for dim, left in without.items()}


def _explained(columns: Floats, totals: Floats) -> float:
    """Share of the sum of squares."""
    left = totals - columns @ np.linalg.lstsq(columns, totals, rcond=None)[0]
    return 1 - float(left @ left) / max(float(totals @ totals), 1e-300)


def _groups(dictionary: Dictionary) -> list[NDArray[np.int64]]:
    """What may enter together, [groups, features] of each size: a dimension's line, its parabola, a product;
    its cosines; all of its functions."""
    starts = UNIVARIATE * np.arange(len(dictionary.scale.dims))[:, None]
    products = np.arange(UNIVARIATE * len(starts), dictionary.size)[:, None]
    curves = [starts + np.arange(2, UNIVARIATE), starts + np.arange(UNIVARIATE)]
    return [np.concatenate([starts, starts + 1, products]), *curves]


class _Pursuit:
    """Of columns [E, P] of length 1, and 0 where nothing is left of them, and totals [E], without offsets."""

    def __init__(self, columns: Floats, totals: Floats, dictionary: Dictionary) -> None:
        self.columns, self.totals = columns, totals
        self.squares = float(totals @ totals)
        self.groups = _groups(dictionary)
        self.price = 2 * np.log(max(len(dictionary.scale.dims) + sum(map(len, dictionary.products)), 1))

    def select(self) -> Block:
        """The chosen columns, sorted."""
        few = len(self.totals) < 3 or self.squares <= 0 or not self.columns.shape[1]
        chosen = [] if few else self._backward(self._forward())
        return np.sort(np.concatenate([np.zeros(0, np.int64), *chosen]))

    def _forward(self) -> list[Block]:
        """What is chosen is projected out of all columns and of the totals."""
        left, rest, chosen = self.columns.copy(), self.totals.copy(), list[Block]()
        free = np.any(left != 0, axis=0)
        while (squares := float(rest @ rest)) > MISFIT**2 * self.squares:
            block, gain, criterion = self._best(left, rest, free)
            if criterion >= 0 or gain <= self._least(squares):
                break
            chosen.append(block)
            free[block] = False
            axes = np.linalg.qr(left[:, block])[0]
            left -= axes @ (axes.T @ left)
            rest -= axes @ (axes.T @ rest)
        return chosen

    def _best(self, left: Floats, rest: Floats, free: NDArray[np.bool_]) -> tuple[Block, float, float]:
        """The group that lowers the criterion most, its gain c_gᵀ G_gg⁻¹ c_g, and the criterion's change."""
        best = (np.zeros(0, np.int64), 0.0, np.inf)
        cross, squares = np.where(free, left.T @ rest, 0.0), float(rest @ rest)
        for groups in self.groups:
            new = free[groups]
            columns = left.T[groups]
            gram = np.einsum("gie,gje->gij", columns, columns, optimize=True)
            gram += np.where(new, _RIDGE, 1.0)[:, :, None] * np.eye(groups.shape[1])
            wanted = cross[groups]
            gains = np.sum(wanted * np.linalg.solve(gram, wanted[:, :, None])[:, :, 0], axis=1)
            criteria = self._criterion(np.minimum(gains, squares), squares, new.sum(axis=1))
            number = int(np.argmin(criteria))
            if criteria[number] < best[2]:
                best = (groups[number][new[number]], float(gains[number]), float(criteria[number]))
        return best

    def _backward(self, chosen: list[Block]) -> list[Block]:
        """Drop the block that is missed least, as long as it is not worth its price."""
        while chosen:
            columns = self.columns[:, np.concatenate(chosen)]
            inverse = np.linalg.inv(columns.T @ columns + _RIDGE * np.eye(columns.shape[1]))
            weights = inverse @ (columns.T @ self.totals)
            rest = max(self.squares - float(weights @ columns.T @ self.totals), MISFIT**2 * self.squares)
            sizes = np.array([len(block) for block in chosen])
            places = np.split(np.arange(columns.shape[1]), np.cumsum(sizes)[:-1])
            parts = [(weights[p], inverse[np.ix_(p, p)]) for p in places]
            losses = np.array([own @ np.linalg.solve(block, own) for own, block in parts])
            criteria = self._criterion(losses, rest + losses, sizes)
            criteria[losses <= self._least(rest + losses)] = np.inf
            weakest = int(np.argmax(criteria))
            if criteria[weakest] < 0:
                break
            del chosen[weakest]
        return chosen

    def _criterion(self, gains: Floats, rest: float | Floats, sizes: NDArray[np.int64]) -> Floats:
        """What the information criterion gains by a group, with a price for the choice among many."""
        count = len(self.totals)
        left = np.maximum(1 - gains / rest, 1e-12)
        return np.asarray(count * np.log(left) + sizes * np.log(count) + self.price)

    def _least(self, rest: float | Floats) -> Floats:
        """The smallest effect that counts."""
        return np.minimum(WORTH * self.squares, OF_REST * np.asarray(rest))
