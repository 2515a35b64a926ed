"""Shapley values of any function of rows, relative to background rows (Shapley, 1953; the interventional form
of Lundberg and Lee, NeurIPS 2017).

The worth of a coalition of players is the function's mean where they have the explained row's values and all
others those of a background row: v(C) = mean_k f(x in C, b_k outside C). A player's contribution is what it
adds on joining, averaged over all orders of joining. Contributions add up to f(x) - mean_k f(b_k); also where
orders are only sampled, since they do so in each order, and each background row meets as many orders.

Background rows are a sample of what might have been, and so are orders where not all are counted. Each row by
itself tells what everybody would earn beside it; how much these differ is the standard error.

The function may compute in single precision; everything around it is in double precision.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, silent

Function = Callable[[NDArray[Any]], NDArray[Any]]  # [N, C] → [N]
Doubles = NDArray[np.float64]
Players = NDArray[np.int64]  # [C] the player that brings each column, or -1: a column of the background

_ROWS = 1 << 16  # in one call of the function, unless a single explained row needs more: bounds the memory


class Shapley(NamedTuple):
    """Contributions of P players to the values of T rows."""

    contributions: Doubles  # [T, P]
    standard_errors: Doubles  # [T, P] by which other background rows and orders would move them
    mean_errors: Doubles  # [P] the same of their mean over rows, who share their background
    values: Doubles  # [T] f(x)
    baseline: float  # mean of f over the background


Gains = Callable[[NDArray[Any], Doubles, Doubles], Doubles]  # of rows [t, C], with f of them and of b_k [K]


def exact(
    function: Function, rows: NDArray[Any], background: NDArray[Any], players: Players, tell: Tell = silent
) -> Shapley:
    """From all 2^P coalitions, for rows [T, C] and background [K, C]."""
    size = int(players.max()) + 1
    coalitions = (np.arange(1 << size)[:, None] >> np.arange(size)) % 2 == 1
    weights, between = _weights(coalitions), coalitions[1:-1]  # the first is empty, the last has everybody

    def gains(some: NDArray[Any], values: Doubles, of_background: Doubles) -> Doubles:
        worth = np.empty((len(some), len(background), len(coalitions)))
        worth[..., 0], worth[..., -1] = of_background, values[:, None]
        if len(between):
            mixed = _of_mixed(function, some, background, between[None, :, None], players)
            worth[..., 1:-1] = np.moveaxis(mixed, 1, 2)
        return worth @ weights

    return _averaged(function, rows, background, gains, len(between), tell)


def sampled(
    function: Function,
    rows: NDArray[Any],
    background: NDArray[Any],
    players: Players,
    rounds: int,
    rng: np.random.Generator,
    tell: Tell = silent,
) -> Shapley:
    """From `rounds` pairs of orders, the second one reversed, for each background row and explained row."""
    size = int(players.max()) + 1

    def gains(some: NDArray[Any], values: Doubles, of_background: Doubles) -> Doubles:
        # The place of each player in its order.
        ranks = np.argsort(rng.random((len(some), rounds, len(background), size)), axis=-1)
        ranks = np.stack([ranks, size - 1 - ranks], axis=1)  # [t, 2, R, K, P]
        present = ranks[..., None, :] < np.arange(1, size)[:, None]  # [t, 2, R, K, P-1, P]
        # The background row is the same all along an order, so its axis comes last but one before mixing.
        mixed = _of_mixed(function, some, background, np.moveaxis(present, 3, 4), players)
        first = np.broadcast_to(of_background, ranks.shape[:-1])[..., None]
        last = np.broadcast_to(values[:, None, None, None], ranks.shape[:-1])[..., None]
        # From f(b_k) up to f(x), what each player adds at its place in each order.
        steps = np.diff(np.concatenate([first, np.moveaxis(mixed, 4, 3), last], axis=-1), axis=-1)
        return np.take_along_axis(steps, ranks, axis=-1).mean(axis=(1, 2))

    return _averaged(function, rows, background, gains, 2 * rounds * (size - 1), tell)


def _weights(coalitions: NDArray[np.bool_]) -> Doubles:
    """[2^P, P]: contributions are v @ weights. |C|! (P-|C|-1)! / P! for i joining C, summed by coalition."""
    count, sizes = coalitions.shape[1], coalitions.sum(axis=1)
    joining = [1 / (count * math.comb(count - 1, size)) for size in range(count)] + [0.0]
    joined, left = np.array(joining)[sizes - 1], np.array(joining)[sizes]
    return np.where(coalitions, joined[:, None], -left[:, None])


def _of_mixed(
    function: Function,
    rows: NDArray[Any],
    background: NDArray[Any],
    present: NDArray[np.bool_],
    players: Players,
) -> Doubles:
    """[t, ..., K] of the row's value where the column's player is present [t, ..., K, P], else b_k's."""
    everywhere = np.concatenate([present, np.zeros((*present.shape[:-1], 1), np.bool_)], axis=-1)
    own = rows.reshape(len(rows), *[1] * (present.ndim - 2), rows.shape[1])
    mixed = np.where(everywhere[..., players], own, background)
    return np.asarray(function(mixed.reshape(-1, mixed.shape[-1])), np.float64).reshape(mixed.shape[:-1])


def _averaged(
    function: Function,
    rows: NDArray[Any],
    background: NDArray[Any],
    gains: Gains,
    mixed: int,
    tell: Tell,
) -> Shapley:
    """From what everybody gains beside each background row [t, K, P], which takes so many mixed rows, some
    rows after others: the mean over the background, and how much of it is chance."""
    values, of_background = (np.asarray(function(each), np.float64) for each in (rows, background))
    size = max(1, _ROWS // max(1, mixed * len(background)))
    found, errors, sums = [], [], []
    for start in range(0, len(rows), size):
        each = gains(rows[start : start + size], values[start : start + size], of_background)
        found.append(each.mean(axis=1))
        errors.append(_error(each, 1))
        sums.append(each.sum(axis=0))
        tell(min(start + size, len(rows)), len(rows))
    of_mean = _error(np.sum(sums, axis=0) / len(rows), 0)
    return Shapley(
        np.concatenate(found), np.concatenate(errors), of_mean, values, float(of_background.mean())
    )


def _error(sample: Doubles, axis: int) -> Doubles:
    """Of the mean over an axis; one background row alone does not tell."""
    count = sample.shape[axis]
    spread = sample.std(axis=axis, ddof=1) if count > 1 else np.full_like(sample.mean(axis=axis), np.nan)
    return np.asarray(spread / math.sqrt(count), np.float64)
