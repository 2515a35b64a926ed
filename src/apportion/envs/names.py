"""Names of dimensions, from the documentation of environments that do not carry them. MuJoCo's are beside its
tasks; an environment of your own declares `observation_names` and `action_names`."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation


class Names(NamedTuple):
    observation: tuple[str, ...]
    action: tuple[str, ...]


def _axes(thing: str) -> tuple[str, ...]:
    return tuple(f"{thing} {axis}" for axis in "xyz")


def _object(number: int) -> tuple[str, ...]:
    thing = f"object {number}"
    return (*_axes(thing), *(f"{thing} quaternion {part}" for part in range(4)))


_FRAME = (*_axes("hand"), "gripper opening", *_object(1), *_object(2))

# All of MetaWorld's tasks have the same dimensions: this frame and the last one, then the goal.
METAWORLD = Names(
    (*_FRAME, *(f"previous {name}" for name in _FRAME), *_axes("goal")),
    (*_axes("move"), "gripper effort"),
)
CARTPOLE = Names(
    ("cart position", "cart velocity", "pole angle", "pole angular velocity"), ("push left", "push right")
)


def documented(env_id: str) -> Names | None:
    """By the id without its module."""
    if env_id.startswith("Meta-World/"):
        return METAWORLD
    return CARTPOLE if env_id == "CartPole-v1" else None


# --- Observations that Gymnasium's FlattenObservation made a vector of. It sorts the keys of a `Dict`, so
# parts need not come in the order of their source: names are read from the space itself, `weather=2`.


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
