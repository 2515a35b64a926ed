"""From candidates to parents: rich features of the candidates, leave-one-out errors, drop what is not missed,
add what explains the remainder. What is left is a reward function, too."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import UNIVARIATE, Dictionary, Dims, batches, rows_at_once, subsets
from apportion.graph.features import MAX_PAIRED, NUMBERS_AT_ONCE, ROWS, Floats
from apportion.graph.priors import (
    ALIKE,
    CHANCE,
    ENOUGH_SEGMENTS,
    MISFIT,
    NEGLIGIBLE,
    OF_REST,
    RICH,
    ROUNDED,
    ROUNDING,
    TINY,
    WORTH,
)
from apportion.graph.ridge import Ridge, Spectrum, ridge
from apportion.graph.segments import Segments


class RewardModel(NamedTuple):
    """A reward function of state-action rows, in closed form: r̂(x) = per_step + Σ_k w_k φ_k(x)."""

    basis: Dictionary
    weights: Floats  # [P]
    per_step: float  # a constant in every step
    per_segment: float  # a constant in every total, which belongs to no step
    per_end: float  # what a step pays besides that ends an episode by itself

    def predict(self, x: NDArray[Any]) -> Floats:
        """Reward of each row [N, D], without what an end pays: [N]."""
        x, rows = np.asarray(x), rows_at_once(len(self.weights))
        parts = [self.basis.features(x[start : start + rows]) for start in range(0, len(x), rows)]
        return self.per_step + np.concatenate([np.zeros(0), *(part @ self.weights for part in parts)])


class Fit(NamedTuple):
    """Ridge regression of totals on rich features of some dimensions."""

    basis: Dictionary
    spectrum: Spectrum
    ridge: Ridge
    unexplained: float  # share of the totals' variance, on segments left out
    noted: list[Dims]  # dimensions of products that explained a remainder
    swapped: dict[tuple[int, int], Ridge]  # what `instead` has found, which is asked for again and again

    @classmethod
    def of(
        cls,
        segments: Segments,
        dims: Iterable[int],
        rng: np.random.Generator,
        noted: list[Dims] | None = None,
    ) -> Self:
        chosen = np.array(sorted(dims), np.int64)
        waves = min(ENOUGH_SEGMENTS, segments.count // 4) if len(chosen) <= RICH else 0
        basis = Dictionary.rich(segments.scale, chosen, waves, rng, noted or [])
        return cls._to(segments, basis, basis.sums(segments.rows), noted or [])

    @classmethod
    def _to(cls, segments: Segments, basis: Dictionary, sums: Floats, noted: list[Dims]) -> Self:
        spectrum = Spectrum.of(sums, segments.offsets)
        found = spectrum.fit(segments.totals)
        return cls(basis, spectrum, found, found.error / segments.variance, noted, {})

    @property
    def sums(self) -> Floats:
        return self.spectrum.sums

    @property
    def parents(self) -> set[int]:
        return set(self.basis.dims.tolist())

    @property
    def model(self) -> RewardModel:
        found = self.ridge
        return RewardModel(self.basis, found.weights, found.per_step, found.per_segment, found.per_end)

    def instead(self, segments: Segments, dim: int, other: int) -> Ridge:
        """With another dimension in the place of a parent, and the same features of it."""
        if (dim, other) not in self.swapped:
            changed, sums = self.basis.restricted(np.array([dim])), self.sums.copy()
            changed = replace(changed, dims=np.where(changed.dims == dim, other, changed.dims))
            sums[:, self.basis.touching(np.array([dim]))] = changed.sums(segments.rows)
            self.swapped[dim, other] = ridge(sums, segments.totals, segments.offsets)
        return self.swapped[dim, other]

    def plainest(self, segments: Segments) -> Self:
        """Without waves, where they do not help to predict segments left out."""
        basis = replace(self.basis, directions=self.basis.directions[:, :0], phases=self.basis.phases[:0])
        plain = self._to(segments, basis, self.sums[:, : basis.size], self.noted)
        return plain if plain.ridge.error <= self.ridge.error else self

    def worths(self, segments: Segments) -> dict[int, tuple[float, float]]:
        """Of each dimension the share of the variance that is lost without it, on segments left out, and the
        standard error of that."""
        found = {}
        for dim in self.basis.dims.tolist():
            left = self.sums[:, ~self.basis.owners[dim]]
            loss, sure = growth(ridge(left, segments.totals, segments.offsets), self.ridge)
            share, error = loss / segments.variance, loss / (sure or 1.0) / segments.variance
            found[dim] = (float(np.clip(share, 0.0, 1.0)), error)
        return found


def candidates(segments: Segments) -> dict[int, float]:
    """The dimensions of features that group orthogonal matching pursuit selects: the group that lowers an
    information criterion most enters, and is projected out of all columns and of the totals; then groups
    leave that are not worth their price beside the others. With the share of the variance that goes with all
    of the features of each."""
    columns, totals = segments.columns, segments.offsets.remove(segments.totals)
    left, rest, chosen = columns.unit.copy(), totals, list[Dims]()
    groups, free = _groups(columns.dictionaries[0]), columns.per_sum > 0
    least = MISFIT**2 * float(totals @ totals)
    while float(rest @ rest) > least and segments.count > 2 and free.any():
        block, criterion = _best(left, rest, free, groups)
        if criterion >= 0:
            break
        chosen.append(block)
        free[block] = False
        axes = np.linalg.qr(left[:, block])[0]
        left -= axes @ (axes.T @ left)
        rest = rest - axes @ (axes.T @ rest)
    while chosen:
        some = columns.unit[:, np.concatenate(chosen)]
        inverse = np.linalg.inv(some.T @ some + ROUNDED * np.eye(some.shape[1]))
        weights = inverse @ (some.T @ totals)
        places = np.split(np.arange(len(weights)), np.cumsum([len(block) for block in chosen])[:-1])
        losses = np.array([weights[p] @ np.linalg.solve(inverse[np.ix_(p, p)], weights[p]) for p in places])
        left_over = max(float(totals @ totals - weights @ some.T @ totals), least)
        sizes = np.array([len(block) for block in chosen])
        criteria = _criterion(losses / (left_over + losses), sizes, segments.count, len(groups[0]))
        if criteria.max() < 0:
            break
        del chosen[int(np.argmax(criteria))]
    selected = np.concatenate([np.zeros(0, np.int64), *chosen])
    owners = columns.owners[:, selected]
    without = {int(dim): selected[~(owners == dim).any(axis=0)] for dim in np.unique(owners)}
    whole = _squares_left(columns.unit[:, selected], totals)
    shares = {dim: _squares_left(columns.unit[:, left], totals) - whole for dim, left in without.items()}
    return {dim: share / float(totals @ totals) for dim, share in shares.items()}


def _squares_left(columns: Floats, totals: Floats) -> float:
    left = totals - columns @ np.linalg.lstsq(columns, totals, rcond=None)[0]
    return float(left @ left)


def _criterion(shares: Floats, sizes: Dims, count: int, choices: int) -> Floats:
    """What an information criterion gains by groups of features that explain some shares of what is left,
    with a price for the choice among many."""
    left = np.maximum(1 - shares, ROUNDING)
    return np.asarray(count * np.log(left) + sizes * np.log(count) + 2 * np.log(choices))


def _groups(dictionary: Dictionary) -> list[Dims]:
    """What may enter together, [groups, features] of each size: a dimension's line, its parabola, a product;
    its cosines; all of its functions."""
    starts = UNIVARIATE * np.arange(len(dictionary.dims))[:, None]
    products = np.arange(starts.size * UNIVARIATE, dictionary.size)[:, None]
    curves = [starts + np.arange(2, UNIVARIATE), starts + np.arange(UNIVARIATE)]
    return [np.concatenate([starts, starts + 1, products]), *curves]


def _best(left: Floats, rest: Floats, free: NDArray[np.bool_], groups: list[Dims]) -> tuple[Dims, float]:
    """The group that lowers the criterion most, by its gain c_gᵀ G_gg⁻¹ c_g, and the criterion's change."""
    best = (np.zeros(0, np.int64), np.inf)
    cross, squares = np.where(free, left.T @ rest, 0.0), float(rest @ rest)
    for members in groups:
        new, some = free[members], left.T[members]
        gram = np.einsum("gie,gje->gij", some, some, optimize=True)
        gram += np.where(new, ROUNDED, 1.0)[:, :, None] * np.eye(members.shape[1])
        wanted = cross[members]
        gains = np.sum(wanted * np.linalg.solve(gram, wanted[:, :, None])[:, :, 0], axis=1)
        shares = np.minimum(gains / squares, 1.0)
        criteria = _criterion(shares, new.sum(axis=1), len(rest), len(groups[0]))
        number = int(np.argmin(criteria))
        if criteria[number] < best[1]:
            best = (members[number][new[number]], float(criteria[number]))
    return best


def refine(segments: Segments, claims: dict[int, float], rng: np.random.Generator) -> Fit:
    """Add what explains the remainder, drop what is not missed, until nothing changes. `claims` are the
    candidates, each with the share of variance that it was given."""
    fit, dropped = Fit.of(segments, claims, rng), set[int]()
    while True:
        more = _missing(segments, fit)
        if set(more.tolist()) - fit.parents - dropped:
            noted = [*fit.noted, more] if len(more) > 2 else fit.noted
            grown = Fit.of(segments, fit.parents.union(more.tolist()), rng, noted)
            if grown.ridge.error < fit.ridge.error:
                fit = grown
                continue
        smaller = _drop(segments, fit, claims, rng)
        if smaller.parents == fit.parents:
            return _swapped(segments, smaller.plainest(segments), rng)
        dropped |= fit.parents - smaller.parents
        fit = smaller


def _swapped(segments: Segments, fit: Fit, rng: np.random.Generator) -> Fit:
    """Another in the place of a parent that it goes with, if left-out totals are predicted better from it."""
    for dim in sorted(fit.parents):
        for other in sorted({*segments.alike(np.array([dim])).tolist()} - fit.parents):
            if fit.instead(segments, dim, other).error < fit.ridge.error:
                noted = [np.sort(np.where(each == dim, other, each)) for each in fit.noted]
                better = Fit.of(segments, fit.parents - {dim} | {other}, rng, noted).plainest(segments)
                if better.ridge.error < fit.ridge.error:
                    return _swapped(segments, better, rng)
    return fit


def refit(segments: Segments, fit: Fit, dims: Dims, rng: np.random.Generator) -> Fit:
    """The reward as a function of these parents, if it predicts left-out totals no worse: one parent more
    brings many features, and may cost more than it is worth."""
    if set(dims.tolist()) == fit.parents:
        return fit
    other = Fit.of(segments, dims.tolist(), rng, fit.noted).plainest(segments)
    return fit if other.ridge.error > fit.ridge.error else other


def _drop(segments: Segments, fit: Fit, claims: dict[int, float], rng: np.random.Generator) -> Fit:
    """Leave out the dimension that is missed least, unless totals of left-out segments are predicted worse
    without it, visibly and by more than chance.

    A misfit of others makes proxies look useful; rich features of the others explain them away. What still
    has half of what it was first given stays, even where noise hides it among so many features.
    """
    while fit.parents:
        dim = int(fit.basis.dims[_weakest(segments, fit)])
        smaller = Fit.of(segments, fit.parents - {dim}, rng, fit.noted)  # its waves are the others' now
        loss, sure = growth(smaller.ridge, fit.ridge)
        share, claim = loss / segments.variance, claims.get(dim, np.inf)
        if (share > WORTH and sure > CHANCE) or share > max(ALIKE * claim, MISFIT):
            break
        fit = smaller
    return fit


def _weakest(segments: Segments, fit: Fit) -> int:
    """The place of the dimension whose features the fit would miss least: B_gᵀ [(G + nλ)⁻¹_gg]⁻¹ B_g."""
    left = segments.offsets.remove(fit.sums)
    spread = np.sum(left**2, axis=0) + ROUNDING
    gram = left.T @ left + np.diag(max(fit.ridge.penalty, ROUNDING) * spread)
    inverse = np.linalg.inv(gram / np.sqrt(np.outer(spread, spread)))
    weights = fit.ridge.weights * np.sqrt(spread)
    blocks = [np.flatnonzero(touched) for touched in fit.basis.owners[fit.basis.dims]]
    losses = [weights[mine] @ np.linalg.solve(inverse[np.ix_(mine, mine)], weights[mine]) for mine in blocks]
    return int(np.argmin(losses))


def growth(without: Ridge, whole: Ridge) -> tuple[float, float]:
    """Of the mean squared error on left-out segments, and how many standard errors that is."""
    more = without.errors**2 - whole.errors**2
    return float(more.mean()), float(more.mean() / (more.std() / np.sqrt(len(more)) + TINY))


def gaussian_ratio(without: Ridge, whole: Ridge) -> float:
    """The log ratio that two predictions of left-out totals would have if errors were Gaussian, and the means
    of their squares as many standard errors apart. Misfits have heavier tails, and so less to say than the
    plain ratio makes of them."""
    return 2 * growth(without, whole)[1] ** 2


def _missing(segments: Segments, fit: Fit) -> Dims:
    """Dimensions whose product, with each other or with the reward found, explains much of the remainder."""
    count = segments.count
    if fit.unexplained >= NEGLIGIBLE and len(fit.parents) < RICH:
        ways = [partial(best_product, segments, fit.ridge.errors, degree) for degree in _degrees(segments)]
        for dims, share, rivals in (way() for way in (*ways, partial(best_factor, segments, fit))):
            allowed = count * np.log(max(1 - share, ROUNDING)) + np.log(count) + 2 * np.log(rivals) < 0
            if allowed and share > OF_REST:
                return dims
    return np.zeros(0, np.int64)


def best_factor(segments: Segments, fit: Fit) -> tuple[Dims, float, int]:
    """The dimension whose line or parabola, times the reward found, goes best with the remainder; the squared
    correlation, and how many there were."""
    dims, parts = segments.scale.dims, []
    if not len(dims):
        return dims, 0.0, 1
    mean = fit.ridge.per_step + float(np.sum(fit.sums @ fit.ridge.weights) / segments.lengths.sum())
    for batch in batches(segments.rows, 4 * len(dims) + fit.basis.size):
        x = np.concatenate(batch)
        z, reward = segments.scale.standardise(x), fit.model.predict(x) - mean
        ends = np.cumsum([len(rows) for rows in batch])[:-1]
        steps = zip(np.split(z, ends), np.split(reward, ends), strict=True)
        parts += [np.concatenate([paid @ each, paid @ (each**2 - 1)]) for each, paid in steps]
    unit, errors = segments.offsets.normalised(np.stack(parts))[0], fit.ridge.errors
    shares = (errors @ unit) ** 2 / max(float(np.sum(segments.offsets.remove(errors) ** 2)), TINY)
    shares *= np.tile(~np.isin(dims, fit.basis.dims), 2)
    best = int(np.argmax(shares))
    return dims[[best % len(dims)]], float(shares[best]), len(shares)


def _degrees(segments: Segments) -> list[int]:
    """Of which degrees products are looked at: as high as there are not too many of them."""
    dims, rows = len(segments.scale.dims), int(segments.lengths.sum())
    if dims > MAX_PAIRED:
        return [2]
    pairs = dims * (dims - 1) // 2
    return [3, 4] if rows * pairs**2 <= 2 * ROWS * NUMBERS_AT_ONCE else [3]


def best_product(segments: Segments, remainder: Floats, degree: int) -> tuple[Dims, float, int]:
    """The product of so many dimensions whose sums go best with the remainder: its dimensions, the squared
    correlation, and how many products there were."""
    dims = segments.scale.dims
    if len(dims) < degree:
        return np.zeros(0, np.int64), 0.0, 1
    remainder, basis = segments.offsets.remove(remainder), segments.offsets.basis
    first, second = (subsets(len(dims), size) for size in (degree // 2 + degree % 2, degree // 2))
    cross, squares = np.zeros((2, len(first), len(second)))
    along = np.zeros((basis.shape[1], len(first), len(second)))
    for number, sums in enumerate(_product_sums(segments, first, second)):
        cross += remainder[number] * sums
        squares += sums**2
        for direction, part in zip(basis[number], along, strict=True):
            part += direction * sums
    spread = squares - np.sum(along**2, axis=0)
    alive = (spread > ROUNDED * squares) & (second[:, 0] > first[:, -1:])
    fit = np.where(alive, cross**2 / np.where(alive, spread, 1.0), 0.0) / max(
        float(np.sum(remainder**2)), TINY
    )
    place, last = np.unravel_index(np.argmax(fit), fit.shape)
    return dims[[*first[place], *second[last]]], float(fit.max()), max(int(alive.sum()), 1)


def _product_sums(segments: Segments, first: Dims, second: Dims) -> Iterator[Floats]:
    """For each segment the sums over its steps of the products of all places in `first` and `second`."""
    for batch in batches(segments.rows, len(first) + len(second)):
        z = segments.scale.standardise(np.concatenate(batch)).astype(np.float32)
        left, right = (np.prod([z[:, column] for column in places.T], axis=0) for places in (first, second))
        end = 0
        for rows in batch:
            start, end = end, end + len(rows)
            yield (left[start:end].T @ right[start:end]).astype(np.float64)
