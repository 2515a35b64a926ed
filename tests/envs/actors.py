"""Policies of random weights, as the trainer sends them."""

from typing import Any

import numpy as np


def actor(states: int, actions: int, lanes: int | None = None) -> dict[str, Any]:
    """A tanh-Gaussian with one hidden layer; of several lanes [L, ...]."""
    rng = np.random.default_rng(0)
    shapes = {"w0": (states, 8), "b0": (8,), "w1": (8, 2 * actions), "b1": (2 * actions,)}
    some = () if lanes is None else (lanes,)
    arrays = {name: rng.normal(size=(*some, *shape)).astype(np.float32) for name, shape in shapes.items()}
    return {"mask": np.ones((*some, states), np.float32), **arrays}
