"""Totals that are yes or no: P(yes) = ε + (1 - 2ε) σ(base + f) with f ~ N(0, K) the sum of a segment's
rewards, in log odds, and ε the share of totals that are flipped, whatever was earned. Laplace's approximation
(Rasmussen and Williams, 2006, sections 3.4 and 5.5): a Gaussian about the mode, with W the Fisher information
there, what each total tells of f; without flips, that is p (1 - p). The posterior itself is sampled."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import expit, log_expit

from apportion.graph.features import Floats
from apportion.graph.priors import DOUBT, ROUNDED, ROUNDING, WORTH

ITERATIONS = 100  # at the most; Newton's method needs about five
_PER_DRAW = 3  # iterations of the sampler; as many as there are draws come before the first that counts
_TERMS = 40  # of a Pólya-Gamma variable; the others vary by less than 1% of its standard deviation


class Seen(NamedTuple):
    """What totals say of a covariance K of their sums."""

    evidence: float
    response: Floats  # [E] K⁻¹ f̂; of numbers (K + noise)⁻¹ totals
    inverse: Floats  # [E, E] (K + W⁻¹)⁻¹; of numbers (K + noise)⁻¹
    pull: Floats  # [E] how the evidence grows with K · response, for the mode moves; of numbers 0


class Laplace:
    """The evidence of yes and no as a function of K. Each search for the mode begins where the last ended."""

    def __init__(self, totals: Floats, base: float, flips: float = 0.0) -> None:
        self.totals, self.base, self.flips = totals, base, flips
        self.response = np.zeros_like(totals)

    def __call__(self, covariance: Floats) -> Seen:
        f, root, weight = self._mode(covariance)
        sharp = np.sqrt(weight)
        inverse = sharp[:, None] * cho_solve((root, True), np.diag(sharp))
        fit = log_likelihood(self.totals, self.base + f, self.flips) - 0.5 * float(self.response @ f)
        told = 1 - np.diag(inverse) / weight  # the posterior's variances times W
        bends, leans = _bends(self.base + f, self.flips)
        moved = -0.5 * told * (2 * bends - leans)  # W changes where the mode moves
        # By which the mode moves, -d² log p: W, where nothing is flipped.
        curvature = weight - slope(self.totals, self.base + f, self.flips) * (bends - leans)
        pull = np.linalg.solve(np.eye(len(f)) + curvature[:, None] * covariance, moved)
        evidence = fit - float(np.sum(np.log(np.diag(root))))
        return Seen(evidence, self.response, inverse, np.asarray(pull, np.float64))

    def _mode(self, covariance: Floats) -> tuple[Floats, Floats, Floats]:
        """f̂, the Cholesky factor of I + √W K √W, and W."""
        response, f, gain = self.response, covariance @ self.response, np.inf
        for _ in range(ITERATIONS):
            weight = information(self.base + f, self.flips)
            sharp = np.sqrt(weight)
            root = cholesky(np.eye(len(f)) + sharp[:, None] * covariance * sharp, lower=True)
            if gain < ROUNDING * (1 + len(f)):
                break
            wanted = weight * f + slope(self.totals, self.base + f, self.flips)
            step = wanted - sharp * cho_solve((root, True), sharp * (covariance @ wanted)) - response
            along = covariance @ step
            size, gain = climbed(partial(self._density, response, step, f, along))
            response, f = response + size * step, f + size * along
        self.response = response
        return f, root, weight

    def _density(self, response: Floats, step: Floats, f: Floats, along: Floats, size: float) -> float:
        moved = f + size * along
        fit = log_likelihood(self.totals, self.base + moved, self.flips)
        return fit - 0.5 * float((response + size * step) @ moved)


def climbed(density: Callable[[float], float]) -> tuple[float, float]:
    """How much of a step of Newton's does not lead down, halved until it does not, and what it gains."""
    before, size = density(0.0), 1.0
    while (after := density(size)) < before and size > ROUNDED:
        size /= 2
    return size, after - before


def log_losses(log_odds: Floats | float, totals: Floats) -> Floats:
    """[..., E] -log p of yes (1) and no (0)."""
    return np.asarray(-log_expit(np.where(totals > 0, log_odds, -np.asarray(log_odds))))


def probability(log_odds: Floats, flips: float) -> Floats:
    """Of yes."""
    return np.asarray(flips + (1 - 2 * flips) * expit(log_odds))


def log_likelihood(totals: Floats, log_odds: Floats, flips: float) -> float:
    """Σ log p of yes (1) and no (0)."""
    if flips == 0:
        return -float(np.sum(log_losses(log_odds, totals)))
    return float(np.sum(np.log(probability(np.where(totals > 0, log_odds, -log_odds), flips))))


def slope(totals: Floats, log_odds: Floats, flips: float) -> Floats:
    """[E] of log p in the log odds."""
    p = probability(log_odds, flips)
    return np.asarray((totals - p) * _rise(log_odds, flips) / np.maximum(p * (1 - p), ROUNDING))


def information(log_odds: Floats, flips: float) -> Floats:
    """[E] Fisher's, in the log odds."""
    p = probability(log_odds, flips)
    return np.maximum(_rise(log_odds, flips) ** 2 / np.maximum(p * (1 - p), ROUNDING), ROUNDING)


def _rise(log_odds: Floats, flips: float) -> Floats:
    return np.asarray((1 - 2 * flips) * expit(log_odds) * expit(-log_odds))


def _bends(log_odds: Floats, flips: float) -> tuple[Floats, Floats]:
    """[E] slopes of log p' and of log p (1 - p) in the log odds, with p' the rise: W = p'² / p (1 - p)."""
    p = probability(log_odds, flips)
    leans = (1 - 2 * p) * _rise(log_odds, flips) / np.maximum(p * (1 - p), ROUNDING)
    return np.asarray(1 - 2 * expit(log_odds)), np.asarray(leans)


class Prior(NamedTuple):
    """Of the weights of columns [E, Q]: N(0, 1), but the first `scaled` columns are exp(s) times as large,
    with s ~ N(0, width²)."""

    columns: Floats
    scaled: int
    width: float


def sample(
    prior: Prior, totals: Floats, base: float, flips: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """The posterior of weights, times exp(s): [1+draws, Q] its mean, then draws; and the mean share of flips,
    of which 0 stays 0. A Gibbs sampler with Pólya-Gamma variables (Polson, Scott and Windle, 2013): Laplace's
    approximation makes effects too small, and too sure, where totals are told well or are flipped."""
    left, spectrum, right = np.linalg.svd(prior.columns[:, : prior.scaled], full_matrices=False)
    kept = spectrum > WORTH * spectrum.max(initial=0.0)
    right, rank = right[kept], int(kept.sum())
    x = np.column_stack([left[:, kept] * spectrum[kept], prior.columns[:, prior.scaled :]])
    weights, log_scale, share = np.zeros(x.shape[1]), 0.0, flips
    ours = np.arange(x.shape[1]) < rank
    found, scales, shares = np.zeros((_PER_DRAW * draws, x.shape[1])), *np.zeros((2, _PER_DRAW * draws))
    sizes = np.ones(x.shape[1])  # exp(s) of the columns that it scales
    for number in range(-draws, len(found)):
        odds = base + x @ (sizes * weights)
        said, share = (totals, 0.0) if flips == 0 else _unflipped(totals, odds, share, rng)
        weights = _regressed(x * sizes, said, base, odds, rng)
        along, rest = x[:, ours] @ weights[ours], base + x[:, ~ours] @ weights[~ours]
        log_scale = _rescaled(log_scale, along, rest, said, prior.width, rng)
        sizes = np.where(ours, np.exp(log_scale), 1.0)
        if number >= 0:
            scales[number], shares[number], found[number] = np.exp(log_scale), share, weights * sizes
    every = slice(_PER_DRAW - 1, None, _PER_DRAW)
    mean, drawn = found.mean(axis=0), found[every]
    unseen = rng.normal(size=(draws, prior.scaled)) * scales[every, None]  # what no total sees has its prior
    unseen -= (unseen @ right.T) @ right
    own = np.concatenate([mean[None, :rank] @ right, drawn[:, :rank] @ right + unseen])
    return np.column_stack([own, np.concatenate([mean[None, rank:], drawn[:, rank:]])]), float(shares.mean())


def log_prior(share: float) -> float:
    """Of a share of flips, which is DOUBT on average, Beta(1, 1/DOUBT - 1): up to a constant."""
    return float((1 / DOUBT - 2) * np.log(1 - share))


def _unflipped(totals: Floats, odds: Floats, share: float, rng: np.random.Generator) -> tuple[Floats, float]:
    """What totals would have been, and what share is flipped, each given the other."""
    p = expit(odds)
    yes, no = np.where(totals > 0, 1 - share, share) * p, np.where(totals > 0, share, 1 - share) * (1 - p)
    said = (rng.random(len(p)) * (yes + no) < yes).astype(np.float64)
    wrong = float(np.sum(said != totals))
    share = rng.beta(1 + wrong, 1 / DOUBT - 1 + len(p) - wrong)  # from a half on, yes would be no
    return said, min(float(share), (1 - DOUBT) / 2)


def _regressed(x: Floats, said: Floats, base: float, odds: Floats, rng: np.random.Generator) -> Floats:
    """[Q] a draw from N(Λ⁻¹ xᵀ(said - ½ - ω base), Λ⁻¹), Λ = I + xᵀ ω x, with ω ~ PG(1, odds)."""
    omega = polya_gamma(odds, rng)
    root = cholesky(np.eye(x.shape[1]) + x.T @ (x * omega[:, None]), lower=True)
    mean = cho_solve((root, True), x.T @ (said - 0.5 - omega * base))
    return np.asarray(mean + solve_triangular(root.T, rng.normal(size=len(mean)), lower=False))


def _rescaled(
    now: float, along: Floats, rest: Floats, said: Floats, width: float, rng: np.random.Generator
) -> float:
    """A draw of s, with log odds rest + exp(s) along, by a slice of its density (Neal, 2003) that shrinks
    from three standard deviations of the prior towards where s is now: with many totals, the density is
    narrower than any grid."""

    def density(s: float) -> float:
        return -float(np.sum(log_losses(rest + np.exp(s) * along, said))) - 0.5 * (s / width) ** 2

    least, low, high = density(now) - rng.exponential(), -3 * width, 3 * width
    while density(s := rng.uniform(low, high)) < least:
        low, high = (s, high) if s < now else (low, s)
    return float(s)


def polya_gamma(tilt: Floats, rng: np.random.Generator) -> Floats:
    """[E] draws of PG(1, c): the first terms of its sum of exponential variables, the mean of others."""
    squares = (np.arange(_TERMS) + 0.5) ** 2 + (tilt[:, None] / (2 * np.pi)) ** 2
    terms, half = 1 / (2 * np.pi**2 * squares), np.maximum(np.abs(tilt) / 2, ROUNDED)
    mean = np.tanh(half) / (4 * half)
    return np.asarray(np.sum((rng.exponential(size=terms.shape) - 1) * terms, axis=1) + mean)
