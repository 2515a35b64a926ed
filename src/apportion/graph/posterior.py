"""Rewards of single steps from sums of them, with error bars: a Gaussian process observed through sums.

r(x) = level + Σ_p w_p φ_p(x), w_p ~ N(0, v_p), total = Σ_t r(x_t) + ε, ε ~ N(0, T σ²). Features have variance
1 over *steps*, so that v is in units of what steps earn: whatever hardly changes a total (a clock that every
episode passes once, a sensor less its copy) stays at its prior, with its prior's variance as its error bar,
however well it would explain the last per mille of the totals.

v_p = v_block Π_d g_d over the dimensions d of a feature: a variance for each kind of feature, and a relevance
0 < g <= 1 for each dimension. They and σ² maximise the evidence -½ yᵀC⁻¹y - ½ log|C|, C = S V Sᵀ + σ² diag(T)
with S the summed features, times a prior by which a dimension is relevant or is not (relevance.py). The
posterior is in closed form. Draws from it are kept: what is computed from rewards gets its error bar by
computing it from each.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from threadpoolctl import threadpool_limits

from apportion.graph import relevance
from apportion.graph.features import Floats, Scale
from apportion.graph.products import Products
from apportion.graph.relevance import Found, Problem

DRAWS = 128  # from the posterior: a standard deviation of so many is right to 6%
SEGMENTS = 600  # by which variances are found; the posterior is of all,
STEPS = 200_000  # as far as they have no more steps than that
WIDE = 10.0  # prior variance of what every step earns
_NEGLIGIBLE = 1e-8  # of all prior variance: features below it are left out of the posterior
_ROUNDING = 1e-12  # of totals: what they differ by less than is none
_ROWS = 2000  # whose features are computed at once


class Posterior(NamedTuple):
    """What totals tell of the reward of a step. A segment's total may hold a constant of its own besides,
    which no step has earned."""

    features: Products  # P of them
    centre: Floats  # [P] mean over steps,
    unit: Floats  # [P] and standard deviation
    weights: Floats  # [K+1, P] the mean of the posterior, then draws from it
    per_step: Floats  # [K+1] what every step earns
    per_segment: Floats  # [K+1] a constant in every total; 0 where steps explain what totals have in common
    noise: float  # variance of a step's reward that no feature explains

    def rewards(self, x: NDArray[Any]) -> Floats:
        """[N, K+1] of rows [N, D]: the expected reward, then that of each draw."""
        weights = self.weights.T.astype(np.float32)
        parts = [self._values(rows) @ weights for rows in _blocks(x)]
        return np.concatenate([np.zeros((0, len(self.per_step)), np.float32), *parts]) + self.per_step

    def expected(self, x: NDArray[Any]) -> Floats:
        """[N] of rows [N, D]."""
        parts = [self._values(rows) @ self.weights[0] for rows in _blocks(x)]
        return np.asarray(self.per_step[0] + np.concatenate([np.zeros(0), *parts]))

    def totals(self, segments: list[NDArray[Any]]) -> tuple[Floats, Floats]:
        """Mean and variance of what segments pay: [E] each."""
        sums = np.stack([self.rewards(rows).sum(axis=0) for rows in segments]) + self.per_segment
        lengths = np.array([len(rows) for rows in segments], np.float64)
        return sums[:, 0], spread(sums) + lengths * self.noise

    def shares(self, x: NDArray[Any], background: NDArray[Any]) -> "Shares":
        """Shapley values of each dimension, relative to rows of the background. Rewards are linear in the
        weights: so are these, by those of each feature."""
        means, shape = self.features.means(background), np.shape(x)
        weights = (self.weights / self.unit).T.astype(np.float32)
        mean, variance = np.zeros(shape), np.zeros(shape)
        average = np.zeros((shape[1], weights.shape[1]))
        for start in range(0, len(x), _ROWS // 4):
            rows = np.asarray(x)[start : start + _ROWS // 4]
            parts = np.zeros((len(self.features.used), len(rows), weights.shape[1]), np.float32)
            for factor, values in enumerate(self.features.shapley(rows, means)):
                for dim in range(len(parts)):
                    mine = np.flatnonzero(self.features.dims[:, factor] == dim)
                    parts[dim] += values[:, mine] @ weights[mine]
            for part, dim in zip(parts, self.features.used, strict=True):
                mean[start : start + len(rows), dim] = part[:, 0]
                variance[start : start + len(rows), dim] = spread(part)
                average[dim] += part.sum(axis=0, dtype=np.float64) / max(len(x), 1)
        return Shares(mean, variance, average)

    def _values(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """[N, P] features of rows, of mean 0 and variance 1."""
        values = self.features.values(x)
        values -= self.centre.astype(np.float32)
        values /= self.unit.astype(np.float32)
        return values

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        return {**self.features._asdict(), **{name: np.asarray(getattr(self, name)) for name in _OWN}}

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        features = Products(**{name: arrays[name] for name in Products._fields})
        own: dict[str, Any] = {name: arrays[name] for name in _OWN}
        return cls(features, **own)._replace(noise=float(own["noise"]))


class Shares(NamedTuple):
    """Shapley values of N steps."""

    mean: Floats  # [N, D]
    variance: Floats  # [N, D]
    average: Floats  # [D, K+1] over all steps: the expected one, then that of each draw


_OWN = tuple(name for name in Posterior._fields if name != "features")


def fit(rows: list[NDArray[Any]], totals: NDArray[Any], rng: np.random.Generator) -> Posterior:
    """From segments: their rows [T, D], and what each was paid."""
    order = rng.permutation(len(rows))
    lengths = np.array([len(each) for each in rows], np.int64)
    order = order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), STEPS, side="right")))]
    rows, lengths = [rows[number] for number in order], lengths[order]
    totals, scale = np.asarray(totals, np.float64)[order], Scale.over(rows)
    single = Products.single(scale, np.concatenate(rows))
    with threadpool_limits(1, "blas"):  # matrices are small: threads would wait for each other
        found = [
            _searched(single, rows, lengths, totals, own) for own in (False, True)[: 1 + _differ(lengths)]
        ]
        problem, best = max(found, key=lambda each: each[0].likelihood(each[1]))
        return problem.posterior(best, rng)


def _searched(
    single: Products, rows: list[NDArray[Any]], lengths: NDArray[np.int64], totals: Floats, own: bool
) -> tuple["Summed", Found]:
    """The best variances, with a constant in every total besides, its `own`, or without: where steps explain
    what totals have in common, it is theirs."""
    paired = len(single.used) <= relevance.PAIRED
    plain = single.joined(single.plain_pairs()) if paired else single
    first = Summed.of(plain, rows, lengths, totals, own)
    found = relevance.search(first.some(SEGMENTS).problem()).before(3 if paired else 2)
    rich = Summed.of(single.rich(found.relevant), rows, lengths, totals, own)
    problem = rich.some(SEGMENTS).problem()
    return rich, relevance.averaged(problem, relevance.search(problem, found))


class Summed(NamedTuple):
    """Features of segments, standardised over steps and added up."""

    features: Products
    centre: Floats  # [P]
    unit: Floats  # [P]
    sums: Floats  # [E, P]
    lengths: Floats  # [E]
    level: float  # what a step is paid on average
    left: Floats  # [E] what totals differ from that by
    own: float  # prior standard deviation of a constant in every total, in units of steps; 0: there is none
    size: float  # a guess of the standard deviation of a step's reward, between two extremes: steps of a
    # segment earn the same, or independently of each other

    @classmethod
    def of(
        cls,
        features: Products,
        rows: list[NDArray[Any]],
        lengths: NDArray[np.int64],
        totals: Floats,
        own: bool = False,
    ) -> "Summed":
        sums, squares = np.zeros((len(rows), features.size)), np.zeros(features.size)
        for number, each in enumerate(rows):
            for block in _blocks(each):
                values = features.values(block)
                sums[number] += values.sum(axis=0, dtype=np.float64)
                squares += np.einsum("np,np->p", values, values, dtype=np.float64)
        steps = lengths.astype(np.float64)
        centre = sums.sum(axis=0) / steps.sum()
        unit = np.sqrt(np.maximum(squares / steps.sum() - centre**2, 0.0))
        alive = unit > 1e-4 * np.maximum(np.abs(centre), 1e-4)
        # What is the same in every segment, as a first step is, nobody can tell from a constant: it has none.
        same = np.ptp(sums[:, alive], axis=0) <= 1e-6 * np.abs(sums[:, alive]).max(axis=0)
        sums = np.where(same, 0.0, (sums[:, alive] - steps[:, None] * centre[alive]) / unit[alive])
        level = float(totals.sum() / steps.sum())
        left = totals - level * steps
        left = np.where(np.abs(left) > _ROUNDING * np.abs(totals).max(), left, 0.0)
        size = float(np.std(left / steps)) * float(steps.mean()) ** 0.25 or 1.0
        constant = np.sqrt(WIDE) * float(np.std(left)) / size if own else 0.0
        return cls(features.take(alive), centre[alive], unit[alive], sums, steps, level, left, constant, size)

    def some(self, count: int) -> "Summed":
        """Of the first segments, which are in no order."""
        return self._replace(sums=self.sums[:count], lengths=self.lengths[:count], left=self.left[:count])

    def problem(self) -> Problem:
        levels = self.levels() * self.level_scale()
        return Problem(self.features, self.sums, self.lengths, levels, self.left / self.size)

    def levels(self) -> Floats:
        """[E, 2] how often each total has what every step earns, and a constant of its own."""
        return np.stack([self.lengths, np.ones_like(self.lengths)], axis=1)

    def level_scale(self) -> Floats:
        """[2] their prior standard deviations."""
        return np.array([np.sqrt(WIDE), self.own])

    def likelihood(self, found: Found) -> float:
        """Of the totals in their own unit: evidence has them in units of steps."""
        return found.evidence - min(SEGMENTS, len(self.sums)) * float(np.log(self.size))

    def posterior(self, found: Found, rng: np.random.Generator) -> Posterior:
        """Of all segments: N((I + Aᵀ A)⁻¹ Aᵀ b, (I + Aᵀ A)⁻¹), in units of the prior's."""
        variances = found.variances(self.features)
        kept = np.flatnonzero(variances > _NEGLIGIBLE * max(float(variances.sum()), 1e-300))
        scale = np.append(np.sqrt(variances[kept]), self.level_scale())
        noise = np.sqrt(found.noise * self.lengths)
        a = np.column_stack([self.sums[:, kept], self.levels()]) * scale / noise[:, None]
        gram = np.eye(len(scale)) + a.T @ a
        root = cholesky(gram, lower=True)
        mean = _solved(root, a.T @ (self.left / self.size / noise))
        draws = solve_triangular(root.T, rng.normal(size=(len(scale), DRAWS)), lower=False)
        weights = np.column_stack([mean, mean[:, None] + draws]).T * scale * self.size
        return Posterior(
            self.features.take(kept),
            self.centre[kept],
            self.unit[kept],
            weights[:, : len(kept)],
            self.level + weights[:, len(kept)],
            weights[:, len(kept) + 1],
            float(found.noise * self.size**2),
        )


def _differ(lengths: NDArray[np.int64]) -> bool:
    return bool(np.ptp(lengths) > 0)


def spread(values: NDArray[Any]) -> Floats:
    """[...] variance of draws [..., K+1] about the mean of the posterior, which comes first."""
    return np.asarray(np.mean((values[..., 1:] - values[..., :1]) ** 2, axis=-1), np.float64)


def _solved(root: Floats, wanted: Floats) -> Floats:
    half = solve_triangular(root, wanted, lower=True)
    return np.asarray(solve_triangular(root.T, half, lower=False))


def _blocks(x: NDArray[Any], rows: int = _ROWS) -> Iterator[NDArray[Any]]:
    x = np.asarray(x)
    return (x[start : start + rows] for start in range(0, len(x), rows))
