"""Totals that are yes or no: P(yes) = ε + (1 - 2ε) σ(base + f) with f ~ N(0, K) the sum of a segment's
rewards, in log odds, and ε the share of totals that are flipped, whatever was earned. Laplace's approximation
(Rasmussen and Williams, 2006, sections 3.4 and 5.5): a Gaussian about the mode, with W the Fisher information
there, what each total tells of f; without flips, that is p (1 - p)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.special import expit, log_expit

from apportion.graph.features import Floats
from apportion.graph.priors import ROUNDING

ITERATIONS = 100  # at the most; Newton's method needs about five
_LEAST = 1e-10  # of W: below, rounding
_NEAR = 1e-4  # log odds, between which a slope is measured


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
        variance = np.diag(covariance) - np.einsum("ij,ji->i", covariance, inverse @ covariance)
        nearby = [information(self.base + f + step, self.flips) for step in (_NEAR, -_NEAR)]
        moved = -0.5 * variance * (nearby[0] - nearby[1]) / (2 * _NEAR)  # W changes where the mode moves
        slopes = [slope(self.totals, self.base + f + step, self.flips) for step in (_NEAR, -_NEAR)]
        curvature = (slopes[1] - slopes[0]) / (
            2 * _NEAR
        )  # by which the mode moves: W, where nothing is flipped
        pull = np.linalg.solve(np.eye(len(f)) + curvature[:, None] * covariance, moved)
        return Seen(fit - float(np.sum(np.log(np.diag(root)))), self.response, inverse, pull)

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
    while (after := density(size)) < before and size > 1e-6:
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
    return np.asarray((totals - p) * _rise(log_odds, flips) / np.maximum(p * (1 - p), _LEAST))


def information(log_odds: Floats, flips: float) -> Floats:
    """[E] Fisher's, in the log odds."""
    p = probability(log_odds, flips)
    return np.maximum(_rise(log_odds, flips) ** 2 / np.maximum(p * (1 - p), _LEAST), _LEAST)


def _rise(log_odds: Floats, flips: float) -> Floats:
    return np.asarray((1 - 2 * flips) * expit(log_odds) * expit(-log_odds))


def mode(columns: Floats, totals: Floats, base: float, flips: float) -> tuple[Floats, Floats]:
    """[Q] the most probable weights of columns [E, Q], which are N(0, 1) a priori, and the Cholesky factor
    [Q, Q] of their precision there."""
    weights = np.zeros(columns.shape[1])
    gain = np.inf
    for _ in range(ITERATIONS):
        log_odds = base + columns @ weights
        weighted = columns * np.sqrt(information(log_odds, flips))[:, None]
        root = cholesky(np.eye(len(weights)) + weighted.T @ weighted, lower=True)
        if gain < ROUNDING * (1 + len(totals)):
            return weights, root
        step = cho_solve((root, True), columns.T @ slope(totals, log_odds, flips) - weights)
        size, gain = climbed(partial(_along, weights, step, columns, totals, base, flips))
        weights = weights + size * step
    return weights, root


def _along(
    weights: Floats, step: Floats, columns: Floats, totals: Floats, base: float, flips: float, size: float
) -> float:
    moved = weights + size * step
    return log_likelihood(totals, base + columns @ moved, flips) - 0.5 * float(moved @ moved)
