"""From candidates to parents: rich features of the candidates, leave-one-out errors, drop what is not missed,
add what explains the remainder. What is left is a reward function, too."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.features import Floats
from apportion.graph.model import WAVES, Basis, RewardModel
from apportion.graph.ridge import Ridge, Spectrum, ridge
from apportion.graph.screen import Segments, best_addition, best_product, product_degrees


class _Staying(NamedTuple):
    """A dimension stays if totals of left-out segments are predicted worse without it: by `of_variance` of
    the totals' variance, or by `of_error` of the error that is left if that is `visible` in them; and by
    more `standard_errors` than chance. Noise among many features may hide what the first selection saw: a
    dimension that still has `of_claim` of what was given to it there stays as well."""

    of_variance: float = 1e-3
    of_error: float = 0.25
    visible: float = 1e-4
    standard_errors: float = 2.0
    of_claim: float = 0.5


class _Entering(NamedTuple):
    """While more than `unexplained` of the variance is left, a dimension comes in that takes `of_error` of
    the error by so many `standard_errors`, or a product that takes `product_of_error`."""

    of_error: float = 0.2
    standard_errors: float = 3.0
    product_of_error: float = 0.1
    unexplained: float = 0.01


class _Effort(NamedTuple):
    """Dimensions enter and leave `rounds` times at most. With more than `rich` of them interactions are too
    many to tell apart, so there are no waves then, and no more dimensions."""

    rounds: int = 6
    rich: int = 16


STAYING, ENTERING, EFFORT = _Staying(), _Entering(), _Effort()


class Fit(NamedTuple):
    """Ridge regression of totals on rich features of some dimensions."""

    basis: Basis
    spectrum: Spectrum
    ridge: Ridge
    noted: list[NDArray[np.int64]]  # dimensions of products that explained a remainder

    @classmethod
    def to(cls, segments: Segments, basis: Basis, sums: Floats, noted: list[NDArray[np.int64]]) -> "Fit":
        spectrum = Spectrum.of(sums, segments.offsets)
        return cls(basis, spectrum, spectrum.fit(segments.totals), noted)

    @property
    def sums(self) -> Floats:
        return self.spectrum.sums

    @property
    def parents(self) -> set[int]:
        return set(self.basis.dims.tolist())


class Refined(NamedTuple):
    """The reward's parents, with what each is worth, and the reward function."""

    parents: NDArray[np.int64]
    probability: dict[int, float]  # that a dimension is a parent, of all that were looked at
    strength: dict[int, float]  # share of the totals' variance lost without the parent, left-out segments
    error: float  # mean square of leave-one-out errors, as a share of the totals' variance
    fit: Fit

    @property
    def model(self) -> RewardModel:
        return RewardModel.of(self.fit.basis, self.fit.ridge)


def refine(segments: Segments, claims: dict[int, float], rng: np.random.Generator) -> Refined:
    """Add what explains the remainder, drop what is not missed, until nothing changes.

    `claims` are the candidates, each with the share of variance that the first selection gives to it.
    """
    fit, dropped = fit_to(segments, np.array(list(claims), np.int64), rng), dict[int, float]()
    for _ in range(EFFORT.rounds):
        more = _additions(segments, fit, rng)
        if set(more.tolist()) - fit.parents - dropped.keys():
            noted = [*fit.noted, more] if len(more) > 2 else fit.noted
            grown = fit_to(segments, np.union1d(fit.basis.dims, more), rng, noted)
            if grown.ridge.error < fit.ridge.error:
                fit = grown
                continue
        before = fit.parents
        fit = _drop(segments, fit, claims, dropped, rng)
        if fit.parents == before:
            break
    else:
        fit = _drop(segments, fit, claims, dropped, rng)
    fit = plainest(segments, fit)
    worth = {int(dim): _loss(segments, fit, place) for place, dim in enumerate(fit.basis.dims)}
    probability = dropped | {dim: float(special.ndtr(z)) for dim, (_, z) in worth.items()}
    return Refined(
        fit.basis.dims,
        probability,
        {dim: float(np.clip(loss / segments.variance, 0.0, 1.0)) for dim, (loss, _) in worth.items()},
        fit.ridge.error / segments.variance,
        fit,
    )


def refit(segments: Segments, refined: Refined, dims: NDArray[np.int64], rng: np.random.Generator) -> Refined:
    """The reward as a function of these parents, if it predicts left-out totals no worse: one parent more
    brings many features, and may cost more than it is worth."""
    if set(dims.tolist()) == refined.fit.parents:
        return refined
    fit = plainest(segments, fit_to(segments, dims, rng, refined.fit.noted))
    if fit.ridge.error > refined.fit.ridge.error:
        return refined
    return refined._replace(parents=fit.basis.dims, error=fit.ridge.error / segments.variance, fit=fit)


def fit_to(
    segments: Segments,
    dims: NDArray[np.int64],
    rng: np.random.Generator,
    noted: list[NDArray[np.int64]] | None = None,
) -> Fit:
    """Rich features of these dimensions."""
    noted = noted or []
    waves = min(WAVES, segments.count // 4) if len(dims) <= EFFORT.rich else 0
    basis = Basis.of(segments.scale, np.sort(dims), waves, rng, noted)
    sums = basis.sums(segments.rows)
    return Fit.to(segments, basis, sums, noted)


def plainest(segments: Segments, fit: Fit) -> Fit:
    """Without waves, where they do not help to predict segments left out."""
    basis = fit.basis.without_waves()
    sums = fit.sums[:, : basis.owners.shape[1]]
    plain = Fit.to(segments, basis, sums, fit.noted)
    return plain if plain.ridge.error <= fit.ridge.error else fit


def _drop(
    segments: Segments,
    fit: Fit,
    claims: dict[int, float],
    dropped: dict[int, float],
    rng: np.random.Generator,
) -> Fit:
    """Leave out the dimension that is missed least, unless it matters.

    A misfit of others makes proxies look useful; rich features of the others explain them away. What still
    has half of what it was first given stays, even where noise hides it among so many features.
    """
    while len(fit.basis.dims):
        place = _weakest(segments, fit)
        smaller = fit_to(
            segments, np.delete(fit.basis.dims, place), rng, fit.noted
        )  # its waves are the others' now
        loss, z = growth(smaller.ridge, fit.ridge)
        least = max(STAYING.of_error * fit.ridge.error, STAYING.visible * segments.variance)
        matters = loss > min(STAYING.of_variance * segments.variance, least)
        dim = int(fit.basis.dims[place])
        stands = loss > max(STAYING.of_claim * claims.get(dim, np.inf), STAYING.visible) * segments.variance
        if (matters and z > STAYING.standard_errors) or stands:
            break
        dropped[dim] = min(float(special.ndtr(z)), 0.5)
        fit = smaller
    return fit


def _weakest(segments: Segments, fit: Fit) -> int:
    """The place of the dimension whose features the fit would miss least: B_gᵀ [(G + nλ)⁻¹_gg]⁻¹ B_g."""
    left = segments.offsets.remove(fit.sums)
    spread = np.sum(left**2, axis=0) + 1e-12
    gram = left.T @ left + np.diag(max(fit.ridge.penalty, 1e-9) * spread)
    inverse = np.linalg.inv(gram / np.sqrt(np.outer(spread, spread)))
    weights = fit.ridge.weights * np.sqrt(spread)
    losses = []
    for touched in fit.basis.owners:
        block = np.flatnonzero(touched)
        losses.append(weights[block] @ np.linalg.solve(inverse[np.ix_(block, block)], weights[block]))
    return int(np.argmin(losses))


def _loss(segments: Segments, fit: Fit, place: int) -> tuple[float, float]:
    """How much the leave-one-out error grows without a dimension, and how many standard errors that is."""
    columns = fit.sums[:, ~fit.basis.owners[place]]
    return growth(ridge(columns, segments.totals, segments.offsets), fit.ridge)


def growth(without: Ridge, whole: Ridge) -> tuple[float, float]:
    """Of the mean squared error on left-out segments, and how many standard errors that is."""
    more = without.errors**2 - whole.errors**2
    return float(more.mean()), float(more.mean() / (more.std() / np.sqrt(len(more)) + 1e-300))


def gaussian_ratio(one: Ridge, other: Ridge) -> float:
    """The log ratio that two predictions of left-out totals would have if errors were Gaussian, and the means
    of their squares as many standard errors apart. Misfits have heavier tails, and so less to say than the
    plain ratio makes of them."""
    return 2 * growth(one, other)[1] ** 2


def _additions(segments: Segments, fit: Fit, rng: np.random.Generator) -> NDArray[np.int64]:
    """Dimensions that explain much of the remainder, if there are such."""
    if fit.ridge.error < ENTERING.unexplained * segments.variance or len(fit.basis.dims) >= EFFORT.rich:
        return np.zeros(0, np.int64)
    errors = fit.ridge.errors
    dim, cut, z = best_addition(segments, fit.basis.dims, errors, rng)
    if cut > ENTERING.of_error and z > ENTERING.standard_errors:
        return np.array([dim])
    for degree in product_degrees(segments):
        dims, share, rivals = best_product(segments, errors, degree)
        n = segments.count
        allowed = n * np.log(max(1 - share, 1e-12)) + np.log(n) + 2 * np.log(rivals) < 0
        if allowed and share > ENTERING.product_of_error:
            return dims
    return np.zeros(0, np.int64)
