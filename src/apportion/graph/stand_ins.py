"""Sources of a next value that say nearly the same, such as two sensors of one thing.

Given the other, neither of them would be missed, though both together are: to leave out one source at a time
finds neither. So what the parents of a target leave unexplained is offered to such sources, one by one; and
who comes in is compared with each that could stand in its place. Which of them it is may stay open.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.features import MAX_PAIRED, Dictionary, Floats

TOLD = 0.9  # of its variance, by all others: such a dimension is hardly missed beside them
ALIKE = 0.5  # of the variance of one, that the other shares: it may stand in its place
PLACES = 8  # at most so many are compared with each that came in, the likest first
SURE = 0.9  # at most, of what is told by comparing sources one by one
EXACT = 1e-8  # a target explained this well follows a formula; nothing finer is asked of its edges

Dims = NDArray[np.int64]


def told_by_others(dictionary: Dictionary, gram: Floats) -> Dims:
    """Dimensions that a sum of all others nearly equals, by second moments of features [P, P]. Entries of a
    one-hot vector always do, and are tested together. Among very many dimensions none is looked for: most
    would be such ones, and to compare them would take long."""
    if not 1 < len(dictionary.scale.dims) <= MAX_PAIRED:
        return np.zeros(0, np.int64)
    shared, lines = _covariance(dictionary, gram)
    left = 1 / np.diag(np.linalg.inv(shared + 1e-9 * np.eye(len(lines))))
    alone = [len(dictionary.scale.teams[place]) == 1 for place in dictionary.scale.team_places[lines]]
    return lines[(left < (1 - TOLD) * np.diag(shared)) & np.array(alone, np.bool_)]


def _covariance(dictionary: Dictionary, gram: Floats) -> tuple[Floats, Dims]:
    """Of the searched dimensions, which come with it."""
    dims = dictionary.scale.dims
    lines = 1 + dictionary.functions * np.arange(len(dims))
    means = gram[0, lines]
    return gram[np.ix_(lines, lines)] - np.outer(means, means), dims


@dataclass(frozen=True, eq=False)
class Target:
    """One next value, and how features explain it."""

    dictionary: Dictionary
    n: int  # transitions
    gram: Floats  # [P, P] second moments of features, the first of them a constant,
    cross: Floats  # [P] and with the next value
    variance: float

    def score(self, dims: Iterable[int]) -> float:
        """The information criterion of features within these dimensions: less is better."""
        columns = self._columns(dims)
        return self.n * float(np.log(self._rest(columns))) + len(columns) * float(np.log(self.n))

    def with_overlooked(self, kept: Dims, offered: Dims, floor: float) -> Dims:
        """The dimensions kept, and of those offered the ones that explain more beside them: each must lower
        the unexplained variance by the share `floor`, and the criterion."""
        price = 2 * np.log(len(self.dictionary.scale.live))
        while len(left := np.setdiff1d(offered, kept)):
            more = np.append(kept, self._most_telling(kept, left))
            growth = self._rest(self._columns(kept)) / self._rest(self._columns(more)) - 1
            if growth <= floor or self.score(kept) - self.score(more) <= price:
                break
            kept = more
        return kept

    def confidences(self, kept: Dims, dim: int, offered: Dims) -> dict[int, float]:
        """That a dimension which came in is an edge, and that those which could take its place are none."""
        others, own = np.setdiff1d(kept, [dim]), self.score(kept)
        missed = (self.score(others) - own) / 2 - np.log(len(self.dictionary.scale.live))
        instead = self._likest(dim, np.setdiff1d(offered, kept))
        over = {int(other): (self.score(np.append(others, other)) - own) / 2 for other in instead}
        sure = {other: min(SURE, float(special.expit(odds))) for other, odds in over.items()}
        return {dim: min(SURE, float(special.expit(min([missed, *over.values()])))), **sure}

    def _columns(self, dims: Iterable[int]) -> Dims:
        return np.concatenate([[0], 1 + self.dictionary.within(np.array(list(dims), np.int64))])

    def _rest(self, columns: Dims) -> float:
        cross = self.cross[columns]
        weights = np.linalg.solve(self.gram[np.ix_(columns, columns)], cross)
        return max(self.variance - float(weights @ cross), EXACT)

    def _most_telling(self, kept: Dims, offered: Dims) -> int:
        """Who has the function that alone explains most of what is left."""
        columns, functions = self._columns(kept), self.dictionary.functions
        starts = 1 + functions * np.searchsorted(self.dictionary.scale.dims, offered)
        mine = (starts[:, None] + np.arange(functions)).ravel()
        known = self.gram[np.ix_(columns, mine)]
        share = np.linalg.solve(self.gram[np.ix_(columns, columns)], known)
        left = np.diag(self.gram)[mine] - np.sum(known * share, axis=0)
        gains = (self.cross[mine] - share.T @ self.cross[columns]) ** 2 / np.maximum(left, EXACT)
        return int(offered[np.argmax(gains) // functions])

    def _likest(self, dim: int, offered: Dims) -> Dims:
        shared, lines = _covariance(self.dictionary, self.gram)
        places = np.searchsorted(lines, offered)
        own = int(np.searchsorted(lines, dim))
        likeness = shared[own, places] ** 2 / (shared[own, own] * np.diag(shared)[places])
        first = np.argsort(-likeness, kind="stable")[:PLACES]
        return offered[first[likeness[first] > ALIKE]]
