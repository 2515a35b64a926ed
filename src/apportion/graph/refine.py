"""From candidates to parents: rich features of the candidates, leave-one-out errors, drop what is not missed,
add what explains the remainder. What is left is a reward function, too."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import WAVES, Dictionary, rows_at_once
from apportion.graph.features import Floats
from apportion.graph.priors import CHANCE, MISFIT, OF_REST, WORTH
from apportion.graph.ridge import Ridge, Spectrum, ridge
from apportion.graph.screen import best_addition, best_product, product_degrees
from apportion.graph.segments import Segments

UNEXPLAINED = 0.01  # share of the variance; while more is left, dimensions and products are looked for
CLAIMED = 0.5  # of what the first selection gave to a dimension: with so much left it stays
RICH = 16  # dimensions: of more, interactions are too many to tell apart, and none is added


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
    noted: list[NDArray[np.int64]]  # dimensions of products that explained a remainder
    dropped: frozenset[int] = frozenset()  # dimensions that were not missed

    @classmethod
    def of(
        cls,
        segments: Segments,
        dims: Iterable[int],
        rng: np.random.Generator,
        noted: list[NDArray[np.int64]] | None = None,
    ) -> Self:
        chosen = np.array(sorted(dims), np.int64)
        waves = min(WAVES, segments.count // 4) if len(chosen) <= RICH else 0
        basis = Dictionary.rich(segments.scale, chosen, waves, rng, noted or [])
        return cls._to(segments, basis, basis.sums(segments.rows), noted or [])

    @classmethod
    def _to(cls, segments: Segments, basis: Dictionary, sums: Floats, noted: list[NDArray[np.int64]]) -> Self:
        spectrum = Spectrum.of(sums, segments.offsets)
        found = spectrum.fit(segments.totals)
        return cls(basis, spectrum, found, found.error / segments.variance, noted)

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

    def plainest(self, segments: Segments) -> Self:
        """Without waves, where they do not help to predict segments left out."""
        basis = self.basis.without_waves()
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


def refine(segments: Segments, claims: dict[int, float], rng: np.random.Generator) -> Fit:
    """Add what explains the remainder, drop what is not missed, until nothing changes.

    `claims` are the candidates, each with the share of variance that the first selection gives to it.
    """
    fit, dropped = Fit.of(segments, claims, rng), set[int]()
    while True:
        more = _additions(segments, fit, rng)
        if set(more.tolist()) - fit.parents - dropped:
            noted = [*fit.noted, more] if len(more) > 2 else fit.noted
            grown = Fit.of(segments, fit.parents.union(more.tolist()), rng, noted)
            if grown.ridge.error < fit.ridge.error:
                fit = grown
                continue
        smaller = _drop(segments, fit, claims, rng)
        if smaller.parents == fit.parents:
            return smaller.plainest(segments)._replace(dropped=frozenset(dropped))
        dropped |= fit.parents - smaller.parents
        fit = smaller


def refit(segments: Segments, fit: Fit, dims: NDArray[np.int64], rng: np.random.Generator) -> Fit:
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
        share = loss / segments.variance
        matters = share > min(WORTH, max(OF_REST * fit.unexplained, MISFIT))
        if (matters and sure > CHANCE) or share > max(CLAIMED * claims.get(dim, np.inf), MISFIT):
            break
        fit = smaller
    return fit


def _weakest(segments: Segments, fit: Fit) -> int:
    """The place of the dimension whose features the fit would miss least: B_gᵀ [(G + nλ)⁻¹_gg]⁻¹ B_g."""
    left = segments.offsets.remove(fit.sums)
    spread = np.sum(left**2, axis=0) + 1e-12
    gram = left.T @ left + np.diag(max(fit.ridge.penalty, 1e-9) * spread)
    inverse = np.linalg.inv(gram / np.sqrt(np.outer(spread, spread)))
    weights = fit.ridge.weights * np.sqrt(spread)
    blocks = [np.flatnonzero(touched) for touched in fit.basis.owners[fit.basis.dims]]
    losses = [weights[mine] @ np.linalg.solve(inverse[np.ix_(mine, mine)], weights[mine]) for mine in blocks]
    return int(np.argmin(losses))


def growth(without: Ridge, whole: Ridge) -> tuple[float, float]:
    """Of the mean squared error on left-out segments, and how many standard errors that is."""
    more = without.errors**2 - whole.errors**2
    return float(more.mean()), float(more.mean() / (more.std() / np.sqrt(len(more)) + 1e-300))


def gaussian_ratio(without: Ridge, whole: Ridge) -> float:
    """The log ratio that two predictions of left-out totals would have if errors were Gaussian, and the means
    of their squares as many standard errors apart. Misfits have heavier tails, and so less to say than the
    plain ratio makes of them."""
    return 2 * growth(without, whole)[1] ** 2


def _additions(segments: Segments, fit: Fit, rng: np.random.Generator) -> NDArray[np.int64]:
    """Dimensions that explain much of the remainder, if there are such."""
    if fit.unexplained < UNEXPLAINED or len(fit.parents) >= RICH:
        return np.zeros(0, np.int64)
    dim, cut, sure = best_addition(segments, fit.basis.dims, fit.ridge.errors, rng)
    if cut > OF_REST and sure > CHANCE:
        return np.array([dim])
    count = segments.count
    for degree in product_degrees(segments):
        dims, share, rivals = best_product(segments, fit.ridge.errors, degree)
        allowed = count * np.log(max(1 - share, 1e-12)) + np.log(count) + 2 * np.log(rivals) < 0
        if allowed and share > OF_REST / 2:
            return dims
    return np.zeros(0, np.int64)
