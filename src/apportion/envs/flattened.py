"""Names for the numbers of an observation that Gymnasium's FlattenObservation made a vector of.

Gymnasium sorts the keys of a `Dict`, so its parts need not come in the order in which its source has them. So
names are read from the space itself: `queues 0`, `weather=2`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation


def flattened_names(env: gymnasium.Env[Any, Any]) -> tuple[str, ...] | None:
    """One for each number; None where no parts with names were flattened, or the vector was changed since."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, FlattenObservation):
            space = env.env.observation_space
            return None if isinstance(space, spaces.Box) else _names("", space)
        if env.observation_space is not env.env.observation_space:
            return None
        env = env.env
    return None


def _names(part: str, space: spaces.Space[Any]) -> tuple[str, ...] | None:
    """Those of a part, in the order in which Gymnasium flattens it."""
    if isinstance(space, spaces.Dict):
        return _all_of([_names(f"{part} {key}".strip(), inner) for key, inner in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return _all_of([_names(f"{part} {place}".strip(), inner) for place, inner in enumerate(space.spaces)])
    if isinstance(space, spaces.Discrete):
        return _choices(part, int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        places = _places(part, space.nvec.shape)
        parts = zip(places, starts, sizes, strict=True)
        return tuple(name for place, start, size in parts for name in _choices(place, start, size))
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return _places(part, space.shape)
    return None


def _all_of(parts: list[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    found = [part for part in parts if part is not None]
    return tuple(name for part in found for name in part) if len(found) == len(parts) else None


def _choices(part: str, start: int, size: int) -> tuple[str, ...]:
    return tuple(f"{part or 's'}={start + choice}" for choice in range(size))


def _places(part: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The part's own name where it is a single number."""
    if np.prod(shape) == 1:
        return (part or "s",)
    return tuple(f"{part or 's'} {','.join(map(str, place))}" for place in np.ndindex(shape))
