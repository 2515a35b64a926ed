"""The reward of additive.py, fitted to segment totals in closed form.

If r̂ = b + Σ_d Σ_k w_dk φ_k(x_d), a segment's mean reward is the same sum over the features' means: a ridge
regression. A few dozen segments are enough where a network would need hundreds, for the penalty prefers
rewards that are simple. Functions are standardised over *steps*, and how much these may vary is what the
evidence of the totals prefers: by leave-one-out, whatever nearly cancels within a segment, as a clock that
every episode passes once, would get any weight that explains the last per mille of the totals. With few
segments only the first functions are used; the evidence decides how many.

Ridge regression gives a little to every dimension that goes with the totals, and what it gives to many can
be far from the reward of single steps. So others follow, which charge more for dimensions that contribute
little to steps: the first steps of the iteration whose end is a group lasso.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.features import CLIP, DIMS_AT_ONCE, ROWS, THREADS, Floats, evenly, rows_of, varies
from apportion.graph.priors import MISFIT, NEGLIGIBLE, ROUNDED, ROUNDING, TINY

LEVELS = (1, 2, 4)  # how many functions of one dimension are tried, of x, x² - 1, |x|, tanh x
FUNCTIONS = LEVELS[-1]
LEAST_SEGMENTS = 2 * FUNCTIONS
_PENALTIES = np.logspace(-8, 3, 23)  # as shares of the features' largest variance
_STEPS = 2 * ROWS  # that tell what a dimension contributes
_CHARGED_ANEW = 2  # times; more changes little


class Fitted(NamedTuple):
    """The fields of an Additive, in single precision."""

    mean: NDArray[np.float32]  # [D]
    std: NDArray[np.float32]  # [D]
    weights: NDArray[np.float32]  # [D, K]
    offset: NDArray[np.float32]  # []
    error: NDArray[np.float32]  # []


class Measured(NamedTuple):
    """Mean and standard deviation of every dimension [D], and which of them are not constant."""

    mean: Floats
    std: Floats
    live: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: list[NDArray[Any]]) -> "Measured":
        """A few dimensions at a time, for copies of all in double precision would be large."""
        dims = rows[0].shape[1]
        blocks = np.array_split(np.arange(dims), -(-dims // DIMS_AT_ONCE))
        with ThreadPoolExecutor(THREADS) as pool:
            parts = pool.map(lambda block: cls._of_some(rows, slice(block[0], block[-1] + 1)), blocks)
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    @classmethod
    def _of_some(cls, rows: list[NDArray[Any]], dims: slice) -> "Measured":
        x = np.concatenate([each[:, dims] for each in rows]).astype(np.float64)
        live = varies(x.min(axis=0), x.max(axis=0))
        return cls(x.mean(axis=0), np.where(live, x.std(axis=0), 1.0), live)


def fit(
    rows: list[NDArray[Any]],
    totals: NDArray[Any],
    allowed: NDArray[np.bool_],
    measured: Measured | None = None,
) -> Fitted:
    """From segments: their rows [T, D] and what each was paid. Only `allowed` dimensions [D] have a say. What
    was measured of the rows may be given."""
    lengths = np.array([len(each) for each in rows], np.float64)
    target = np.asarray(totals, np.float64) / lengths
    mean, std, live = measured or Measured.of(rows)
    dims = np.flatnonzero(live & allowed)
    average = float(np.average(target, weights=lengths))
    spread = float(np.sqrt(np.average((target - average) ** 2, weights=lengths)))
    if len(rows) < LEAST_SEGMENTS or not len(dims) or spread == 0:
        return _model(mean, std, np.zeros((len(mean), FUNCTIONS)), average, spread or 1.0)

    def means_of(x: Floats) -> Floats:  # [D, K]
        return np.stack(functions((x[:, dims] - mean[dims]) / std[dims], np), axis=-1).mean(axis=0)

    with ThreadPoolExecutor(THREADS) as pool:
        means = np.stack(list(pool.map(means_of, rows)))
    levels = [level for level in LEVELS if level == 1 or level * len(dims) <= FUNCTIONS * len(rows)]
    some = (rows_of(rows, evenly(_STEPS, int(lengths.sum())))[:, dims] - mean[dims]) / std[dims]
    found, error = _best(means, target, lengths, levels)
    for _ in range(_CHARGED_ANEW):
        scale = np.sqrt(_contributions(some, found))[:, None]
        found, error = _best(means * scale, target, lengths, levels)
        found *= scale
    weights = np.zeros((len(mean), FUNCTIONS))
    weights[dims] = found
    middle = np.average(means, axis=0, weights=lengths)
    offset = float(average - np.sum(middle * weights[dims]))
    return _model(mean, std, weights, offset, max(error, NEGLIGIBLE * spread))


def functions(z: Any, numpy: Any) -> tuple[Any, ...]:
    """φ_1 .. φ_K of standardised values, computed by NumPy or by jax.numpy."""
    z = numpy.clip(z, -CLIP, CLIP)
    return z, z**2 - 1, numpy.abs(z), numpy.tanh(z)


def _contributions(z: Floats, weights: Floats) -> Floats:
    """[D] how much the part of each dimension varies over standardised steps [N, D]; the largest has 1."""
    parts = np.sum(np.stack(functions(z, np), axis=-1) * weights, axis=-1).std(axis=0)
    return np.maximum(parts / max(float(parts.max()), TINY), MISFIT)


def _best(means: Floats, target: Floats, lengths: Floats, levels: list[int]) -> tuple[Floats, float]:
    """Weights [D, K] of the functions whose means over segments are given [E, D, K], with as many of them as
    have the largest evidence, and their leave-one-out error."""
    segments, dims, _ = means.shape
    fits = [_ridge(means[:, :, :level].reshape(segments, -1), target, lengths) for level in levels]
    best = int(np.argmax([each.evidence for each in fits]))
    weights = np.zeros((dims, FUNCTIONS))
    weights[:, : levels[best]] = fits[best].weights.reshape(dims, -1)
    return weights, fits[best].error


class _Ridge(NamedTuple):
    weights: Floats
    error: float  # leave-one-out, root mean square
    evidence: float  # logarithm, up to a constant


def _ridge(features: Floats, target: Floats, lengths: Floats) -> _Ridge:
    """The posterior mean of w ~ N(0, σ²/λ) with noise N(0, σ²/T) in a segment's mean reward, at the σ² of the
    largest evidence -½ n log σ² - ½ Σ_i log(1 + s_i²/λ), with s_i the features' singular values, and averaged
    over λ by the same evidence: of few segments it says as much for "all is noise" as for a reward.

    Segments count by their length, as the variance of what they pay does: a fine in an episode of five steps
    must not outweigh all that is earned in long ones. Unlike graph.ridge, features keep their scale: what
    varies little between segments is shrunk more.
    """
    share = lengths / lengths.mean()
    root = np.sqrt(share)
    centred = root[:, None] * (features - np.average(features, axis=0, weights=share))
    wanted = root * (target - np.average(target, weights=share))
    left, spectrum, right = np.linalg.svd(centred, full_matrices=False)
    if spectrum[0] == 0:
        return _Ridge(np.zeros(features.shape[1]), float(np.sqrt(np.mean(wanted**2))), -np.inf)
    along, squared = left.T @ wanted, spectrum**2
    beyond = max(float(wanted @ wanted - along @ along), ROUNDING * float(wanted @ wanted))
    penalties = _PENALTIES[:, None] * squared[0]  # [λ, 1], beside [rank]
    noise = beyond + np.sum(along**2 * penalties / (squared + penalties), axis=1)
    evidence = -0.5 * (len(target) - 1) * np.log(noise) - 0.5 * np.sum(np.log1p(squared / penalties), axis=1)
    chosen, kept = special.softmax(evidence), squared / (squared + penalties)
    leverage = left**2 @ kept.T + share[:, None] / len(target)
    misses = (wanted[:, None] - left @ (kept * along).T) / np.maximum(1 - leverage, ROUNDED)
    weights = right.T @ (chosen @ kept / np.maximum(spectrum, ROUNDING * spectrum[0]) * along)
    error = float(np.sqrt(np.mean((misses @ chosen) ** 2)))
    return _Ridge(weights, error, float(special.logsumexp(evidence)))


def _model(mean: Floats, std: Floats, weights: Floats, offset: float, error: float) -> Fitted:
    arrays = (mean, std, weights, np.asarray(offset), np.asarray(error))
    return Fitted(*(np.asarray(array, np.float32) for array in arrays))
