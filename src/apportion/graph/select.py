"""Group orthogonal matching pursuit: which groups of features explain the totals, by second moments alone.

Forward, the group that lowers an information criterion most enters; then the same test backward.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from apportion.graph.features import UNIVARIATE, Dictionary, Floats

SHARE_OF_TOTAL = 1e-3  # a group must explain so much of the totals' variance,
SHARE_OF_REST = 0.2  # or so much of what is still unexplained
MAX_GROUPS = 80
_EXACT = 1e-9  # share of the variance below which nothing is left to explain


class Regression(NamedTuple):
    """Second moments with the offsets projected out, per segment; features have unit variance."""

    gram: Floats  # [P, P]
    cross: Floats  # [P]
    variance: float
    segments: int


class Groups(NamedTuple):
    """What may enter together: a dimension's line, its parabola, its cosines, or all of them; a product."""

    blocks: list[NDArray[np.int64]]  # features of each group
    rivals: int  # how many causes are being compared

    @classmethod
    def of(cls, dictionary: Dictionary) -> "Groups":
        starts = UNIVARIATE * np.arange(len(dictionary.scale.dims))
        parts = ([0], [1], list(range(2, UNIVARIATE)), list(range(UNIVARIATE)))
        blocks = [start + np.array(part) for part in parts for start in starts]
        blocks += [np.array([k]) for k in range(UNIVARIATE * len(starts), dictionary.size)]
        return cls(blocks, len(starts) + len(dictionary.pairs))

    @property
    def by_size(self) -> list[NDArray[np.int64]]:
        """[groups, features] the blocks of each size, to treat them together."""
        sizes = sorted({len(block) for block in self.blocks})
        return [np.stack([block for block in self.blocks if len(block) == size]) for size in sizes]


def select(regression: Regression, groups: Groups) -> NDArray[np.int64]:
    """The chosen features, sorted."""
    if regression.segments < 3 or regression.variance <= 0 or not groups.blocks:
        return np.zeros(0, np.int64)
    return _backward(regression, groups, _forward(regression, groups))


def explained(regression: Regression, columns: NDArray[np.int64]) -> float:
    """Share of the variance that these features explain together."""
    if not len(columns) or regression.variance <= 0:
        return 0.0
    gram, cross = regression.gram[np.ix_(columns, columns)], regression.cross[columns]
    return min(float(cross @ np.linalg.solve(gram, cross)) / regression.variance, 1.0)


def _forward(regression: Regression, groups: Groups) -> list[NDArray[np.int64]]:
    """Chosen blocks. Rows of `basis` are orthonormal directions in the span of what was chosen."""
    gram, cross, rest = regression.gram, regression.cross.copy(), regression.variance
    basis = np.zeros((0, len(gram)))
    by_size = groups.by_size
    left = [gram[blocks[:, :, None], blocks[:, None, :]] for blocks in by_size]
    taken = np.zeros(len(gram), np.bool_)
    chosen: list[NDArray[np.int64]] = []
    while len(chosen) < MAX_GROUPS and rest > _EXACT * regression.variance:
        block, gain, criterion = _best(by_size, left, cross, taken, rest, regression, groups)
        if criterion >= 0 or gain <= _floor(rest, regression):
            break
        chosen.append(block[~taken[block]])
        block = chosen[-1]
        taken[block] = True
        rows = gram[block] - basis[:, block].T @ basis
        lower = linalg.cholesky(rows[:, block] + 1e-9 * np.eye(len(block)), lower=True)
        rows = linalg.solve_triangular(lower, rows, lower=True)
        step = linalg.solve_triangular(lower, cross[block], lower=True)
        cross -= rows.T @ step
        rest -= float(step @ step)
        basis = np.concatenate([basis, rows])
        for blocks, part in zip(by_size, left, strict=True):
            news = rows[:, blocks]  # [m, G, size]
            part -= np.einsum("mgi,mgj->gij", news, news)
    return chosen


def _best(
    by_size: list[NDArray[np.int64]],
    left: list[Floats],
    cross: Floats,
    taken: NDArray[np.bool_],
    rest: float,
    regression: Regression,
    groups: Groups,
) -> tuple[NDArray[np.int64], float, float]:
    """The group that lowers the criterion most, its gain c_gᵀ G_gg⁻¹ c_g, and the criterion's change."""
    best = (np.zeros(0, np.int64), 0.0, np.inf)
    for blocks, part in zip(by_size, left, strict=True):
        new = ~taken[blocks]
        size = blocks.shape[1]
        ridge = np.where(new, 1e-6, 1.0)[:, :, None] * np.eye(size)
        c = np.where(new, cross[blocks], 0.0)
        gains = np.einsum("gi,gi->g", c, np.linalg.solve(part + ridge, c[:, :, None])[:, :, 0])
        gains = np.minimum(gains, rest)
        criteria = _criterion(gains, rest, new.sum(axis=1), regression, groups)
        number = int(np.argmin(criteria))
        if criteria[number] < best[2]:
            best = (blocks[number], float(gains[number]), float(criteria[number]))
    return best


def _backward(regression: Regression, groups: Groups, chosen: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Drop the block that is missed least, as long as it is not worth its price."""
    while chosen:
        columns = np.concatenate(chosen)
        inverse = np.linalg.inv(regression.gram[np.ix_(columns, columns)])
        weights = inverse @ regression.cross[columns]
        rest = max(
            regression.variance - float(weights @ regression.cross[columns]), _EXACT * regression.variance
        )
        places = np.split(np.arange(len(columns)), np.cumsum([len(block) for block in chosen])[:-1])
        losses = np.array(
            [float(weights[p] @ np.linalg.solve(inverse[np.ix_(p, p)], weights[p])) for p in places]
        )
        sizes = np.array([len(p) for p in places])
        criteria = _criterion(losses, rest + losses, sizes, regression, groups)
        criteria[losses <= _floor(rest + losses, regression)] = np.inf
        weakest = int(np.argmax(criteria))
        if criteria[weakest] < 0:
            break
        chosen = [block for i, block in enumerate(chosen) if i != weakest]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def _criterion(
    gains: Floats, rest: float | Floats, sizes: NDArray[np.int64], regression: Regression, groups: Groups
) -> Floats:
    """What the information criterion gains by the group, with a price for the choice among many."""
    n = regression.segments
    left = np.maximum(1 - gains / rest, 1e-12)
    return np.asarray(n * np.log(left) + sizes * np.log(n) + 2 * np.log(max(groups.rivals, 1)))


def _floor(rest: float | Floats, regression: Regression) -> Floats:
    """The smallest effect that counts."""
    return np.minimum(SHARE_OF_TOTAL * regression.variance, SHARE_OF_REST * np.asarray(rest))
