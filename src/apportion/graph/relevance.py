"""How much steps may vary with each dimension and each kind of feature: what the evidence of totals prefers.

v_p = v_block Π_d g_d over the dimensions of a feature: a variance for each kind of feature, and a relevance
0 < g <= 1 for each dimension, so that what matters in products may matter alone. With C = S V Sᵀ + σ² diag(T)
+ levels, they maximise -½ yᵀC⁻¹y - ½ log|C| plus the logarithm of a prior: log g is about 0 where a dimension
is relevant and about -8 where it is not; log v is about -2, and log σ² broad. All v are in units of steps, so
that no dimension may vary much more than others only because totals do not see it.

Where totals are yes or no, sums are log odds, and the evidence is Laplace's approximation (bernoulli.py).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import logit

from apportion.graph.bernoulli import ITERATIONS, Laplace, Seen
from apportion.graph.features import Floats
from apportion.graph.priors import RICH, ROUNDED, ROUNDING, TINY, WORTH
from apportion.graph.products import BLOCKS, Products

_IRRELEVANT_AT = -8.0  # log g; both kinds have a standard deviation of 1
_BLOCK_PRIOR, _NOISE_PRIOR = (-2.0, 1.0), (-3.0, 4.0)  # mean and standard deviation of log v, log σ²
_NEW = _IRRELEVANT_AT / 2  # log v of kinds of features that are new


class Problem(NamedTuple):
    """Segments, in units of a step's reward."""

    features: Products
    chances: Floats  # [I] that inputs are relevant, before any data
    sums: Floats  # [E, P]
    lengths: Floats  # [E]
    levels: Floats  # [E, K] of prior variance 1
    totals: Floats  # [E]
    base: float | None = None  # log odds of a segment without its steps, where totals are yes (1) or no (0)
    flips: float = 0.0  # share of these that are flipped


class Found(NamedTuple):
    """The best variances."""

    relevances: Floats  # [I] log g of each input
    blocks: Floats  # [BLOCKS] log v
    log_noise: float  # log σ²
    relevant: NDArray[np.int64]  # dimensions with a good part of the prior variance, the largest first
    evidence: float
    probabilities: Floats = np.zeros(0)  # [I] that an input is relevant, where that was asked

    @property
    def noise(self) -> float:
        return float(np.exp(self.log_noise))

    def before(self, kinds: int, chances: Floats) -> "Found":
        """Where to begin with more features: those from this kind on are new, and worth little."""
        blocks = np.where(np.arange(BLOCKS) < kinds, self.blocks, _NEW)
        return self._replace(relevances=np.maximum(self.relevances, np.log(chances)), blocks=blocks)

    def variances(self, features: Products) -> Floats:
        """[P] the prior variance of each feature's weight."""
        exponents = features.owners @ self.relevances + self.blocks[features.blocks]
        return features.portions * np.exp(exponents)


def search(problem: Problem, before: Found | None = None) -> Found:
    """From where an earlier search with fewer features ended, if there was one."""
    dims = len(problem.chances)
    start = np.concatenate([np.log(problem.chances), np.zeros(BLOCKS), [_NOISE_PRIOR[0]]])
    if before is not None:
        start = np.concatenate([before.relevances, before.blocks, [before.log_noise]])
    # Nothing varies more than steps do; below, the prior says how far variances may go.
    bounds = [(np.log(ROUNDED), 0.0)] * (dims + BLOCKS) + [(np.log(ROUNDED), -_NEW)]
    best = minimize(
        _Objective(problem),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": ITERATIONS, "ftol": 1e-10, "gtol": 1e-4},
    )
    relevances, blocks, log_noise = best.x[:dims], best.x[dims:-1], float(best.x[-1])
    found = Found(relevances, blocks, log_noise, np.zeros(0, np.int64), -float(best.fun))
    varied = found.variances(problem.features) @ (problem.features.looks_at & ~problem.features.plain)
    order = np.argsort(-varied, kind="stable")
    return found._replace(relevant=order[varied[order] > WORTH * varied.max(initial=TINY)][:RICH])


def averaged(problem: Problem, found: Found) -> Found:
    """With each relevance multiplied by the probability that it is one: what totals cannot tell keeps that
    part of its variance that the prior calls relevant."""
    objective, dims = _Objective(problem), len(found.relevances)
    at = np.concatenate([found.relevances, found.blocks, [found.log_noise]])
    best = objective.evidence(at)
    relevances, probabilities = found.relevances.copy(), np.zeros(dims)
    for place in range(dims):
        other, relevant = at.copy(), at[place] > _IRRELEVANT_AT / 2
        other[place] = _IRRELEVANT_AT if relevant else 0.0
        gain = (best - objective.evidence(other)) * (1 if relevant else -1)
        odds = logit(problem.chances[place]) + gain
        logs = np.array([-np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)])
        relevances[place] = np.logaddexp(*(logs + np.sort([at[place], other[place]])[::-1]))
        probabilities[place] = np.exp(logs[0])
    return found._replace(relevances=relevances, probabilities=probabilities)


class _Objective:
    """-log(evidence × prior) and its gradient, in log g, log v and log σ²."""

    def __init__(self, problem: Problem) -> None:
        self.sums, self.lengths, self.totals = problem.sums, problem.lengths, problem.totals
        self.owners = problem.features.owners.astype(np.float64)
        self.blocks, self.portions = problem.features.blocks, problem.features.portions
        self.levels, self.chances = problem.levels @ problem.levels.T, problem.chances
        self.laplace = None if problem.base is None else Laplace(problem.totals, problem.base, problem.flips)

    def evidence(self, at: Floats) -> float:
        """Without the prior."""
        dims = self.owners.shape[1]
        prior = _prior(self.chances, at[:dims], at[dims:-1], at[-1])[0]
        return -self(at)[0] - prior

    def __call__(self, at: Floats) -> tuple[float, Floats]:
        dims = self.owners.shape[1]
        relevances, blocks, log_noise = at[:dims], at[dims:-1], at[-1]
        variances = self.portions * np.exp(self.owners @ relevances + blocks[self.blocks])
        noise = np.exp(log_noise) * self.lengths
        covariance = (self.sums * variances) @ self.sums.T + self.levels
        try:
            if self.laplace is None:
                seen = _gaussian(covariance, noise, self.totals)
            else:
                seen = self.laplace(covariance)
        except LinAlgError:  # too little noise for rounding: as bad as can be
            return 1 / ROUNDING, np.zeros_like(at)
        along, pulled = self.sums.T @ seen.response, self.sums.T @ seen.pull
        free = np.einsum("ep,ep->p", self.sums, seen.inverse @ self.sums)
        by_feature = variances * (0.5 * (along**2 - free) + along * pulled)
        by_noise = noise * (seen.response**2 - np.diag(seen.inverse)) if self.laplace is None else 0.0
        by_block = np.bincount(self.blocks, by_feature, BLOCKS)
        slope = np.concatenate([self.owners.T @ by_feature, by_block, [0.5 * np.sum(by_noise)]])
        prior, prior_slope = _prior(self.chances, relevances, blocks, log_noise)
        return -(seen.evidence + prior), -(slope + prior_slope)


def _gaussian(covariance: Floats, noise: Floats, totals: Floats) -> Seen:
    factor = cho_factor(covariance + np.diag(noise), lower=True)
    inverse = cho_solve(factor, np.eye(len(noise)))
    response = inverse @ totals
    evidence = -0.5 * totals @ response - np.sum(np.log(np.diag(factor[0])))
    return Seen(float(evidence), response, inverse, np.zeros_like(response))


def _prior(chances: Floats, relevances: Floats, blocks: Floats, log_noise: float) -> tuple[float, Floats]:
    """Logarithm of the prior density, up to a constant, and its gradient."""
    kinds = np.stack([relevances, relevances - _IRRELEVANT_AT])
    logs = np.log([chances, 1 - chances]) - 0.5 * kinds**2
    density = np.logaddexp(*logs)
    slope = -np.sum(np.exp(logs - density) * kinds, axis=0)
    rest = (np.append(blocks, log_noise) - _MIDDLES) / _WIDTHS
    return float(density.sum() - 0.5 * np.sum(rest**2)), np.concatenate([slope, -rest / _WIDTHS])


_MIDDLES = np.array([_BLOCK_PRIOR[0]] * BLOCKS + [_NOISE_PRIOR[0]])
_WIDTHS = np.array([_BLOCK_PRIOR[1]] * BLOCKS + [_NOISE_PRIOR[1]])
