"""Features of a step: products of up to three functions of different dimensions.

Functions of one dimension, standardised: z, z² - 1, |z|, tanh z, sign z, two hinges that begin a standard
deviation from the mean, and cos(πk F(z)) with F its empirical distribution function. A dimension of two
values has the first only. None is cut off within the range that was seen: a step far out may earn as much as
it is far, and what is not given to it would fall to others. Beyond that range the nearest end counts.

Factors of products are counted from the ends of a dimension's range, as a price or a switch is: where one of
them is at its end, the others have no effect. So a product holds effects of its dimensions alone as well, and
where totals cannot tell these, as of a price that is the same every day, that is doubt, too.

How far a step moved a state, s' - s, is a feature as it is: over an episode such moves come to the last state
less the first, so that totals tell little of them, and what they may earn is mostly doubt.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import CLIP, QUANTILES, Floats, Scale
from apportion.graph.priors import MOST, chance_of_each

COSINES = 6
LINE, SQUARE, SIZE, TANH, SIGN, ABOVE, BELOW, RISING, FALLING, STEP, WAVES = range(11)
FUNCTIONS = WAVES + COSINES
_GATES = (RISING, FALLING)  # from one end of the range, or from the other
_IN_PAIRS = (*_GATES, SIZE, STEP, ABOVE, BELOW)
_IN_TRIPLES = (*_GATES, STEP)
_ALONE = (LINE, SQUARE, SIZE, TANH, SIGN, ABOVE, BELOW, *range(WAVES, FUNCTIONS))
FACTORS = len((_ALONE, _IN_PAIRS, _IN_TRIPLES))  # at the most
BLOCKS = 2 * FACTORS  # kinds of features: smooth or not, of one dimension, of two and of three
_SMOOTH = (LINE, SQUARE)

Feature = tuple[tuple[int, int], ...]  # dimension and function of each factor


class Products(NamedTuple):
    """P features, as arrays."""

    used: NDArray[np.int64]  # [K] which dimensions of a row are read; the others here count among these
    mean: Floats  # [K]
    std: Floats  # [K]
    binary: NDArray[np.bool_]  # [K] dimensions of two values, which are not clipped
    quantiles: Floats  # [QUANTILES, K] of standardised values
    plain: NDArray[np.bool_]  # [K] entries of vectors, and moves: without functions of them, or products
    inputs: NDArray[np.int64]  # [K] of which input each is an entry: one of a category, or of a vector
    dims: NDArray[np.int64]  # [P, FACTORS] of each factor; -1 where there are fewer
    functions: NDArray[np.int64]  # [P, FACTORS]

    @classmethod
    def single(
        cls, scale: Scale, some: NDArray[Any], owners: NDArray[np.int64] | None = None, moves: int = 0
    ) -> Self:
        """All functions of single dimensions, as far as they vary in some rows and are no copies. Dimensions
        with the same owner [D] are entries of one input, such as a vector, and so are those of a one-hot
        vector; another flag is an input by itself. So many of the last are moves s' - s."""
        used, values = scale.dims, np.array([len(np.unique(some[:, dim])) for dim in scale.dims], np.int64)
        moved = used >= some.shape[1] - moves
        counted = ~moved | (values > 3)  # what has two values changes, but does not move
        used, values, moved = used[counted], values[counted], moved[counted]
        binary = values <= 2
        whose = used if owners is None else owners[used]
        whose = np.where(binary, whose.max(initial=0) + 1 + scale.team[used], whose)
        inputs = np.unique(whose, return_inverse=True)[1]
        plain = moved | (~binary & (np.bincount(inputs)[inputs] > 1))
        quantiles = (scale.quantiles[:, used] - scale.mean[used]) / scale.std[used]
        empty = np.zeros((0, FACTORS), np.int64)
        bare = cls(used, scale.mean[used], scale.std[used], binary, quantiles, plain, inputs, empty, empty)
        return bare._with(
            ((dim, function),)
            for dim in range(len(used))
            for function in ((LINE,) if binary[dim] or plain[dim] else _ALONE)
        )

    def chances(self, owners: NDArray[np.int64] | None) -> Floats:
        """[I] the prior probability that each input matters: a draw falls on an owner, then on one of its
        inputs."""
        firsts = np.unique(self.inputs, return_index=True)[1]
        whose = self.used[firsts] if owners is None else owners[self.used[firsts]]
        _, place, count = np.unique(whose, return_inverse=True, return_counts=True)
        return np.asarray(chance_of_each(1 / (max(len(count), 1) * count[place])))

    def plain_pairs(self) -> Iterator[Feature]:
        """Products of two of all dimensions, each rising or falling."""
        pairs = combinations(np.flatnonzero(~self.plain).tolist(), 2)
        return (((i, f), (j, g)) for i, j in pairs for f, g in product(_GATES, repeat=2))

    def rich(self, dims: NDArray[np.int64]) -> Self:
        """With products of two of these dimensions, and of three of the first."""
        dims = dims[~self.plain[dims]]
        more = [
            tuple(zip(chosen, functions, strict=True))
            for count, which, of in ((2, dims, _IN_PAIRS), (3, dims[:MOST], _IN_TRIPLES))
            for chosen in combinations(sorted(which.tolist()), count)
            for functions in product(*(_GATES if self.binary[dim] else of for dim in chosen))
        ]
        return self.take(self.factors == 1).joined(more)

    def joined(self, more: Iterable[Feature]) -> Self:
        added = self._with(more)
        return self._replace(
            dims=np.concatenate([self.dims, added.dims]),
            functions=np.concatenate([self.functions, added.functions]),
        )

    def _with(self, features: Iterable[Feature]) -> Self:
        padded = [[*each, *[(-1, 0)] * (FACTORS - len(each))] for each in features]
        table = np.array(padded, np.int64).reshape(-1, FACTORS, 2)
        return self._replace(dims=table[..., 0], functions=table[..., 1])

    def take(self, which: NDArray[Any]) -> Self:
        return self._replace(dims=self.dims[which], functions=self.functions[which])

    @property
    def size(self) -> int:
        return len(self.dims)

    @property
    def there(self) -> NDArray[np.bool_]:
        """[P, FACTORS] whether there is such a factor."""
        return np.asarray(self.dims >= 0)

    @property
    def factors(self) -> NDArray[np.int64]:
        """[P] how many there are."""
        return self.there.sum(axis=1)

    @property
    def looks_at(self) -> NDArray[np.bool_]:
        """[P, K] which dimensions each feature looks at."""
        return np.any(self.dims[..., None] == np.arange(len(self.used)), axis=1)

    @property
    def owners(self) -> NDArray[np.bool_]:
        """[P, I] which inputs each feature looks at."""
        theirs = self.inputs[self.dims][..., None] == np.unique(self.inputs)
        return np.any(self.there[..., None] & theirs, axis=1)

    @property
    def blocks(self) -> NDArray[np.int64]:
        """[P] the kind of each: by how many factors it has, and whether these are smooth."""
        smooth = np.all(~self.there | np.isin(self.functions, _GATES), axis=1)
        smooth |= (self.factors == 1) & np.isin(self.functions[:, 0], _SMOOTH)
        return np.asarray(2 * (self.factors - 1) + ~smooth)

    @property
    def portions(self) -> Floats:
        """[P] of its kind's variance for the same inputs; waves have less the shorter they are."""
        short = np.maximum(self.functions[:, 0] - WAVES + 1, 1) * (self.factors == 1)
        portion = 1.0 / np.maximum(short, 1) ** 2
        whose = np.where(self.there, self.inputs[self.dims], -1).tolist()
        names = [(block, *inputs) for block, inputs in zip(self.blocks.tolist(), whose, strict=True)]
        whole: Counter[tuple[int, ...]] = Counter()
        for name, each in zip(names, portion.tolist(), strict=True):
            whole[name] += each
        return portion / np.array([whole[name] for name in names])

    def values(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """[N, P] of rows [N, D]."""
        table = self._table(x)
        first, *others = self._columns().T
        found = table[:, first]
        for column in others:
            there = np.flatnonzero(column >= 0)
            found[:, there] *= table[:, column[there]]
        return found

    def _columns(self) -> NDArray[np.int64]:
        """[P, FACTORS] of the table; -1, its last, where there is no factor."""
        rich, plain = np.cumsum(~self.plain) - 1, np.cumsum(self.plain) + FUNCTIONS * np.sum(~self.plain) - 1
        of_rich = rich[self.dims] * FUNCTIONS + self.functions
        return np.where(self.there, np.where(self.plain[self.dims], plain[self.dims], of_rich), -1)

    def _table(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """[N, F + 1] every function of every dimension, of plain ones the line only, and 1."""
        rich = np.flatnonzero(~self.plain)
        every = (np.asarray(x)[:, self.used] - self.mean) / self.std
        every = np.clip(every, self.quantiles[0], self.quantiles[-1]).astype(np.float32)
        z, quantiles = every[:, rich], self.quantiles[:, rich]
        table = np.empty((len(z), len(rich), FUNCTIONS), np.float32)
        table[..., LINE], table[..., SQUARE], table[..., SIZE] = z, z**2 - 1, np.abs(z) - np.sqrt(2 / np.pi)
        table[..., TANH], table[..., SIGN] = np.tanh(z), np.sign(z)
        table[..., ABOVE], table[..., BELOW] = np.maximum(z - 1, 0), np.maximum(-z - 1, 0)
        low, high = quantiles[0].astype(np.float32), quantiles[-1].astype(np.float32)
        table[..., RISING], table[..., FALLING] = z - np.maximum(low, -CLIP), np.minimum(high, CLIP) - z
        table[..., STEP] = z > 0
        levels, waves = np.linspace(0, np.pi, QUANTILES), np.arange(1, COSINES + 1, dtype=np.float32)
        for dim in np.flatnonzero(~self.binary[rich]):
            ranks = np.interp(z[:, dim], quantiles[:, dim], levels).astype(np.float32)
            table[:, dim, WAVES:] = np.cos(ranks[:, None] * waves)
        ones = np.ones((len(z), 1), np.float32)
        return np.concatenate([table.reshape(len(z), -1), every[:, self.plain], ones], axis=1)

    # --- Shapley values of features, by those of their factors

    def means(self, background: NDArray[Any]) -> NDArray[np.float32]:
        """[2^FACTORS, P] the background's mean of the product of each subset of factors."""
        table, columns = self._table(background), self._columns().T
        factors = [table[:, column] for column in columns]
        found = []
        for subset in product((False, True), repeat=FACTORS):
            inside = [factor for factor, there in zip(factors, subset, strict=True) if there]
            found.append(np.prod(inside, axis=0).mean(axis=0) if inside else np.ones(self.size, np.float32))
        return np.stack(found).astype(np.float32)

    def shapley(self, x: NDArray[Any], means: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """[N, P] for each factor in turn: what it adds to a feature, averaged over the orders in which
        factors become known. A factor that is not there is 1 everywhere, and adds nothing."""
        table, columns = self._table(x), self._columns().T
        a, b, c = (table[:, column] for column in columns)
        mean = means.reshape(*[2] * FACTORS, self.size)  # by whether a, b, c are in the product
        nothing, alone = mean[1, 1, 1], (a * mean[0, 1, 1], b * mean[1, 0, 1], c * mean[1, 1, 0])
        bc, ac, ab = b * c * mean[1, 0, 0], a * c * mean[0, 1, 0], a * b * mean[0, 0, 1]
        whole = a * b * c
        for mine, (first, second), (with_first, with_second), others in (
            (alone[0], alone[1:], (ab, ac), bc),
            (alone[1], (alone[0], alone[2]), (ab, bc), ac),
            (alone[2], alone[:2], (ac, bc), ab),
        ):
            yield (mine - nothing + whole - others) / 3 + (with_first - first + with_second - second) / 6
