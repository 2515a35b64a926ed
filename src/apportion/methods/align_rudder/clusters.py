"""Kinds of states: k-means from a start that lies far apart, so that the same data give the same kinds."""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import vq

ROUNDS = 20  # k-means has settled by then, or nearly so
MOST_POINTS = 20_000

Points = NDArray[np.float64]


def centres_of(demonstrated: Points, usual: Points, count: int) -> Points:
    """[K, S] of what demonstrations reached and of as much of what is usual."""
    points = np.concatenate([_thinned(demonstrated, MOST_POINTS), _thinned(usual, len(demonstrated))])
    centres = _far_apart(points, count)
    for _ in range(ROUNDS):
        nearest, _ = vq(points, centres)
        sizes = np.bincount(nearest, minlength=count)
        sums = np.stack([np.bincount(nearest, column, count) for column in points.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres


def _far_apart(points: Points, count: int) -> Points:
    """The point nearest to the mean, then always the one farthest from all chosen."""
    away = np.sum((points - points.mean(axis=0)) ** 2, axis=1)
    chosen = [points[np.argmin(away)]]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.sum((points - chosen[-1]) ** 2, axis=1))
        chosen.append(points[np.argmax(nearest)])
    return np.stack(chosen)


def _thinned(points: Points, most: int) -> Points:
    """Evenly chosen where there are more."""
    return points[:: max(1, -(-len(points) // max(most, 1)))]
