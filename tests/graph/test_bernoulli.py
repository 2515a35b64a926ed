"""The posterior of log odds by sampling, beside formulas and integrals."""

import numpy as np
import pytest
from scipy.special import expit

from apportion.graph import bernoulli
from apportion.graph.bernoulli import Prior


@pytest.mark.parametrize("tilt", [0.0, 1.0, 6.0])
def test_polya_gamma_has_its_mean_and_variance(tilt: float) -> None:
    """E = tanh(c/2) / 2c, Var = (sinh c - c) / (4 c³ cosh²(c/2)) (Polson, Scott and Windle, 2013)."""
    drawn = bernoulli.polya_gamma(np.full(40_000, tilt), np.random.default_rng(0))
    mean = 0.25 if tilt == 0 else np.tanh(tilt / 2) / (2 * tilt)
    variance = 1 / 24 if tilt == 0 else (np.sinh(tilt) - tilt) / (4 * tilt**3 * np.cosh(tilt / 2) ** 2)
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.var() == pytest.approx(variance, rel=0.05)
    assert drawn.min() > 0


@pytest.mark.parametrize("flips", [0.0, 0.2])
def test_sampled_weights_are_those_of_the_integral(flips: float) -> None:
    """One weight, and a scale, where log odds hardly vary by more than 1: summed up on a grid. With flips,
    over their share as well."""
    rng = np.random.default_rng(1)
    column, base = rng.normal(size=60), -0.5
    totals = (rng.random(60) < flips + (1 - 2 * flips) * expit(base + 2 * column)).astype(np.float64)
    prior = Prior(column[:, None], 1, 0.5, 1.0)
    drawn, share = bernoulli.sample(prior, totals, base, flips, 1000, np.random.default_rng(2))
    weight, scale = np.meshgrid(np.linspace(-5, 5, 401), np.linspace(-1.5, 1.5, 41))
    chance = np.clip(expit(base + (np.exp(scale) * weight)[..., None] * column), 1e-12, 1 - 1e-12)
    shares = np.linspace(0.005, 0.445, 45) if flips else np.zeros(1)  # alike before data
    by_share = [
        np.exp(
            np.sum(np.log(np.where(totals > 0, e + (1 - 2 * e) * chance, 1 - e - (1 - 2 * e) * chance)), -1)
            - 0.5 * weight**2
            - 2 * scale**2
            - 0.5 * (np.exp(scale) * weight * column.std()) ** 2
        )
        for e in shares
    ]
    density = np.sum(by_share, axis=0)
    effect = np.exp(scale) * weight
    mean = np.sum(effect * density) / density.sum()
    spread = np.sqrt(np.sum((effect - mean) ** 2 * density) / density.sum())
    assert drawn[0, 0] == pytest.approx(mean, abs=0.15 * spread)
    assert drawn[1:].std() == pytest.approx(spread, rel=0.15)
    assert share == pytest.approx(np.average(shares, weights=np.sum(by_share, axis=(1, 2))), abs=0.02)


def test_what_no_total_sees_keeps_its_prior() -> None:
    rng = np.random.default_rng(3)
    seen = rng.normal(size=(200, 1))
    columns = np.concatenate([seen, seen], axis=1)  # only the sum of both weights counts
    totals = (rng.random(200) < expit(seen[:, 0])).astype(np.float64)
    drawn, _ = bernoulli.sample(
        Prior(columns, 2, 1e-2, 10.0), totals, 0.0, 0.0, 500, np.random.default_rng(4)
    )
    assert np.std(drawn[1:, 0] - drawn[1:, 1]) == pytest.approx(np.sqrt(2), rel=0.15)
    assert np.std(drawn[1:, 0] + drawn[1:, 1]) < 0.5
