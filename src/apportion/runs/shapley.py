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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, silent

Function = Callable[[NDArray[Any]], NDArray[Any]]  # [N, C] → [N]
Doubles = NDArray[np.float64]

_ROWS = 1 << 16  # in one call of the function, unless a single explained row needs more: bounds the memory


class Players(NamedTuple):
    """Who plays, and with which columns of a row."""

    size: int  # P
    of_column: NDArray[np.int64]  # [C] the player that brings each column, or -1: a column of the background


class Shapley(NamedTuple):
    """Contributions of P players to the values of T rows."""

    contributions: Doubles  # [T, P]
    standard_errors: Doubles  # [T, P] by which other background rows and orders would move them
    mean_errors: Doubles  # [P] the same of their mean over rows, who share their background
    values: Doubles  # [T] f(x)
    baseline: float  # mean of f over the background


def exact(
    function: Function,
    rows: NDArray[Any],
    background: NDArray[Any],
    players: Players,
    tell: Tell = silent,
) -> Shapley:
    """From all 2^P coalitions, for rows [T, C] and background [K, C]."""
    values, of_background = _double(function(rows)), _double(function(background))
    coalitions = _all_coalitions(players.size)  # [2^P, P]; the first is empty, the last has everybody
    weights, between = _weights(coalitions), coalitions[1:-1]

    def gains(chunk: slice) -> Doubles:
        worth = np.empty((len(values[chunk]), len(background), len(coalitions)))
        worth[..., 0], worth[..., -1] = of_background, values[chunk, None]
        if len(between):
            mixed = _mix(rows[chunk], background, between[None, :, None], players)
            worth[..., 1:-1] = np.moveaxis(_evaluate(function, mixed), 1, 2)
        return worth @ weights

    chunks = _chunks(len(rows), len(between) * len(background))
    return _averaged(_told(gains, chunks, len(rows), tell), values, of_background)


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
    values, of_background = _double(function(rows)), _double(function(background))

    def gains(chunk: slice) -> Doubles:
        shape = (len(rows[chunk]), rounds, len(background), players.size)
        ranks = np.argsort(rng.random(shape), axis=-1)  # the place of each player in its order
        ranks = np.stack([ranks, players.size - 1 - ranks], axis=1)  # [t, 2, R, K, P]
        present = ranks[..., None, :] < np.arange(1, players.size)[:, None]  # [t, 2, R, K, P-1, P]
        # The background row is the same all along an order, so its axis comes last but one before mixing.
        mixed = _mix(rows[chunk], background, np.moveaxis(present, 3, 4), players)
        between = np.moveaxis(_evaluate(function, mixed), 4, 3)  # [t, 2, R, K, P-1]
        return _gains(ranks, between, values[chunk], of_background).mean(axis=(1, 2))

    chunks = _chunks(len(rows), 2 * rounds * len(background) * (players.size - 1))
    return _averaged(_told(gains, chunks, len(rows), tell), values, of_background)


def _told(
    gains: Callable[[slice], Doubles], chunks: list[slice], count: int, tell: Tell
) -> Iterator[Doubles]:
    """What is gained in chunks of rows, one after the other."""
    for chunk in chunks:
        yield gains(chunk)
        tell(min(chunk.stop, count), count)


def _all_coalitions(count: int) -> NDArray[np.bool_]:
    return (np.arange(1 << count)[:, None] >> np.arange(count)) % 2 == 1


def _weights(coalitions: NDArray[np.bool_]) -> Doubles:
    """[2^P, P]: contributions are v @ weights. |C|! (P-|C|-1)! / P! for i joining C, summed by coalition."""
    count, sizes = coalitions.shape[1], coalitions.sum(axis=1)
    joining = [1 / (count * math.comb(count - 1, size)) for size in range(count)] + [0.0]
    joined, left = np.array(joining)[sizes - 1], np.array(joining)[sizes]
    return np.where(coalitions, joined[:, None], -left[:, None])


def _mix(
    rows: NDArray[Any], background: NDArray[Any], present: NDArray[np.bool_], players: Players
) -> NDArray[Any]:
    """[t, ..., K, C]: the row's value where the column's player is present [t, ..., K, P], else b_k's."""
    everywhere = np.concatenate([present, np.zeros((*present.shape[:-1], 1), np.bool_)], axis=-1)
    own = rows.reshape(len(rows), *[1] * (present.ndim - 2), rows.shape[1])
    return np.where(everywhere[..., players.of_column], own, background)


def _evaluate(function: Function, mixed: NDArray[Any]) -> Doubles:
    flat = mixed.reshape(-1, mixed.shape[-1])
    return _double(function(flat)).reshape(mixed.shape[:-1])


def _gains(ranks: NDArray[np.int64], between: Doubles, values: Doubles, of_background: Doubles) -> Doubles:
    """[t, 2, R, K, P]: what each player adds at its place in each order, from f(b_k) up to f(x)."""
    shape = between.shape[:-1]
    first = np.broadcast_to(of_background, shape)[..., None]
    last = np.broadcast_to(values[:, None, None, None], shape)[..., None]
    steps = np.diff(np.concatenate([first, between, last], axis=-1), axis=-1)
    return np.take_along_axis(steps, ranks, axis=-1)


def _averaged(gains: Iterable[Doubles], values: Doubles, of_background: Doubles) -> Shapley:
    """From what everybody earns beside each background row [t, K, P], some rows after others: the mean over
    the background, and how much of it is chance. One background row alone does not tell."""
    found, errors, sums = [], [], []
    for each in gains:
        found.append(each.mean(axis=1))
        errors.append(_error(each, 1))
        sums.append(each.sum(axis=0))
    of_mean = _error(np.sum(sums, axis=0) / len(values), 0)
    baseline = float(of_background.mean())
    return Shapley(np.concatenate(found), np.concatenate(errors), of_mean, values, baseline)


def _error(sample: Doubles, axis: int) -> Doubles:
    """Of the mean over an axis."""
    count = sample.shape[axis]
    spread = sample.std(axis=axis, ddof=1) if count > 1 else np.full_like(sample.mean(axis=axis), np.nan)
    return np.asarray(spread / math.sqrt(count), np.float64)


def _chunks(count: int, rows_each: int) -> list[slice]:
    size = max(1, _ROWS // max(1, rows_each))
    return [slice(start, start + size) for start in range(0, count, size)]


def _double(values: NDArray[Any]) -> Doubles:
    return np.asarray(values, np.float64)
