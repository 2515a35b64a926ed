"""Totals that are yes or no: P(yes) = ε + (1 - 2ε) σ(base + f) with f ~ N(0, K) the sum of a segment's
rewards, in log odds, and ε the share of totals that are flipped, whatever was earned. Laplace's approximation
(Rasmussen and Williams, 2006, sections 3.4 and 5.5): a Gaussian about the mode, with W the Fisher information
there, what each total tells of f; without flips, that is p (1 - p). The posterior itself is sampled."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import expit, log_expit, logit

from apportion.graph.features import Floats
from apportion.graph.priors import DOUBT, ROUNDED, ROUNDING, WORTH

ITERATIONS = 100  # at the most; Newton's method needs about five
_PER_DRAW = 3  # iterations of the sampler; as many as there are draws come before the first that counts
_TERMS = 20  # of a Pólya-Gamma variable; others vary by 2% of its standard deviation at odds of e¹⁰ to 1


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
    with s ~ N(0, width²); times exp(-½ (d / spread)²), d the standard deviation of log odds over segments:
    without it nothing bounds them where answers may be flipped."""

    columns: Floats
    scaled: int
    width: float
    spread: float


def sample(
    prior: Prior, totals: Floats, base: float, flips: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """The posterior of weights, times exp(s): [1+draws, Q] its mean, then draws; and the mean share of flips,
    of which 0 stays 0, and others below a half are alike before data. A Gibbs sampler with Pólya-Gamma
    variables (Polson, Scott and Windle, 2013): Laplace's approximation makes effects too small, and too sure,
    where totals are told well or are flipped. Given which are, the share and s could hardly move: they are
    drawn before that is, together, and with s grow weights of which totals say less than the prior, by steps
    along orbits of a group (Liu and Sabatti, 2000)."""
    own = prior.columns[:, : prior.scaled]
    variances, axes = np.linalg.eigh(own.T @ own)  # a decomposition of `own` itself may not converge
    kept = variances > WORTH**2 * variances.max(initial=0.0)
    seen, rank = axes[:, kept], int(kept.sum())
    x = np.column_stack([own @ seen, prior.columns[:, prior.scaled :]])
    weights, scale, share, said, most = np.zeros(x.shape[1]), 0.0, flips, totals, 3 * prior.width
    apart = (x - x.mean(axis=0)) / (prior.spread * len(x) ** 0.5)
    held = apart.T @ apart
    found, scales, shares = np.zeros((_PER_DRAW * draws, x.shape[1])), *np.zeros((2, _PER_DRAW * draws))

    def of_scale(s: float) -> float:
        flipped = 0.5 - (0.5 - share) * float(np.exp((scale - s) * steeper))
        if not 0 <= flipped <= (1 - DOUBT) / 2:
            return -np.inf
        grown = weights[:rank] * np.exp((s - scale) * free)
        odds = rest + x[:, :rank] @ grown
        fit = log_likelihood(totals, odds, flipped) + s * (free.sum() - rank - steeper)
        varied = (s / prior.width) ** 2 + odds.var() / prior.spread**2
        return float(fit - 0.5 * (np.exp(-2 * s) * grown @ grown + varied))

    for number in range(-draws, len(found)):
        rest = base + x[:, rank:] @ weights[rank:]
        for told in rng.random(4) ** 3 / 4:  # by a total, at the most; any will do
            free, steeper = 1 / (1 + variances[kept] * told), rng.random() / 2 if flips > 0 else 0.0
            moved = _sliced(of_scale, scale, -most, most, rng)
            weights[:rank] *= np.exp((moved - scale) * free)
            share = 0.5 - (0.5 - share) * float(np.exp((scale - moved) * steeper))
            scale, odds = moved, rest + x[:, :rank] @ weights[:rank]
            if flips > 0:
                share = _sliced(partial(log_likelihood, totals, odds), share, 0.0, (1 - DOUBT) / 2, rng)
        if flips > 0:
            unflipped = expit(odds - (2 * totals - 1) * logit(share))
            said = (rng.random(len(odds)) < unflipped).astype(np.float64)
        sizes = np.where(np.arange(len(weights)) < rank, np.exp(scale), 1.0)
        precision = held + np.diag(sizes**-2.0)
        weights = _regressed(x, said - 0.5, base, precision, polya_gamma(odds, rng), rng)
        if number >= 0:
            scales[number], shares[number], found[number] = np.exp(scale), share, weights
    every = slice(_PER_DRAW - 1, None, _PER_DRAW)
    found = np.concatenate([found.mean(axis=0)[None], found[every]])
    unseen = rng.normal(size=(draws, prior.scaled)) * scales[every, None]  # what no total sees has its prior
    drawn = found[:, :rank] @ seen.T
    drawn[1:] += unseen - (unseen @ seen) @ seen.T
    return np.column_stack([drawn, found[:, rank:]]), float(shares.mean())


def _regressed(
    x: Floats, y: Floats, base: float, precision: Floats, omega: Floats, rng: np.random.Generator
) -> Floats:
    """[Q] a draw from N(Λ⁻¹ xᵀ(y - ω base), Λ⁻¹), Λ = xᵀ ω x + precision."""
    told = x * np.sqrt(omega)[:, None]
    root = cholesky(told.T @ told + precision, lower=True)
    mean = cho_solve((root, True), x.T @ (y - omega * base))
    return np.asarray(mean + solve_triangular(root.T, rng.normal(size=len(mean)), lower=False))


def _sliced(
    density: Callable[[float], float], now: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """A draw by a slice of a log density (Neal, 2003), from these bounds towards where it is now."""
    least = density(now) - rng.exponential()
    while density(drawn := rng.uniform(low, high)) < least:
        low, high = (drawn, high) if drawn < now else (low, drawn)
    return float(drawn)


def polya_gamma(tilt: Floats, rng: np.random.Generator) -> Floats:
    """[E] draws of PG(1, c): the first terms of its sum of exponential variables, the mean of others."""
    squares = (np.arange(_TERMS) + 0.5) ** 2 + (tilt[:, None] / (2 * np.pi)) ** 2
    terms, half = 1 / (2 * np.pi**2 * squares), np.maximum(np.abs(tilt) / 2, ROUNDED)
    mean = np.tanh(half) / (4 * half)
    return np.asarray(np.sum((rng.exponential(size=terms.shape) - 1) * terms, axis=1) + mean)
