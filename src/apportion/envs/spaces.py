"""What we ask of an environment's spaces, what they say by themselves, and actions in their own range.

Complaints name the fix.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.core.spec import Graph, Spec, block_shapes

MOST_FLATTENED = 1_000  # numbers of a table or picture that it makes sense to take as a vector


def check_observation_space(env_id: str, space: spaces.Space[Any]) -> None:
    if space.shape and 0 in space.shape:
        raise UserError(f"{env_id} observes nothing (shape {space.shape}): add at least one number")
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return
    kind = f"{type(space).__name__} of shape {space.shape}" if space.shape else type(space).__name__
    fix = "register it wrapped in gymnasium.wrappers.FlattenObservation"
    if len(space.shape or ()) > 1 and np.prod(space.shape or ()) > MOST_FLATTENED:
        fix = "pictures are not learned from yet, so observe what they show in some numbers"
    raise UserError(f"{env_id} observes a {kind}, but a vector (Box with one axis) is needed: {fix}")


def check_action_space(env_id: str, space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Discrete):
        return
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        kind = f"Box of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
        fix = "wrap it in gymnasium.wrappers.TransformAction, or choose another environment"
        if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
            choices = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
            count = math.prod(choices.ravel().tolist())
            choice = f"number its {count:,} combinations in a Discrete({count})"
            fix = f"{choice} by gymnasium.wrappers.TransformAction"
        need = "but a Box of floats or a Discrete space is needed"
        raise UserError(f"{env_id} takes actions from a {kind}, {need}: {fix}")
    shape, bounded = space.shape, bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    check(0 not in shape, f"{env_id} has no action to choose (shape {shape}): add at least one")
    need = "but a vector (one axis) is needed: reshape them with gymnasium.wrappers.TransformAction"
    check(len(shape) == 1, f"{env_id} takes actions of shape {shape}, {need}")
    fix = "gymnasium.wrappers.RescaleAction can then map to [-1, 1] (ClipAction enforces them)"
    declare = f"declare finite ones in its action_space, which {fix}"
    check(bounded, f"{env_id} has an action without bounds: {declare}")
    wide = bool((space.low < space.high).all())
    check(wide, f"{env_id} has an action whose low bound is not below its high one: widen or drop it")


def not_finite(observation: NDArray[Any], names: Sequence[str] = ()) -> str | None:
    """Its first dimension that is no finite number, in words; None where all are."""
    bad = np.flatnonzero(~np.isfinite(observation))
    if not bad.size:
        return None
    which = f"{bad[0]} ({names[bad[0]]})" if names else f"{bad[0]}"
    return f"{observation[bad[0]]} in dimension {which}: give its last good number instead"


def check_graph(env_id: str, graph: Any, states: int, actions: int) -> None:
    """None is fine: few environments know their graph."""
    if graph is None:
        return
    fix = "make it apportion.core.spec.Graph"
    check(isinstance(graph, Graph), f"{env_id} declares a true_graph of type {type(graph).__name__}: {fix}")
    for block, shape in block_shapes(states, actions).items():
        found = np.shape(getattr(graph, block))
        check(found == shape, f"{env_id} declares true_graph.{block} of shape {found}: make it {shape}")


def size_of(space: spaces.Space[Any]) -> int:
    """Numbers of a vector, or choices of a discrete action."""
    return int(space.n) if isinstance(space, spaces.Discrete) else (space.shape or (0,))[0]


def spec_of(
    whose: str, observations: spaces.Space[Any], actions: spaces.Space[Any], max_episode_steps: int
) -> Spec:
    """The facts about an environment with these spaces; `whose` they are is said in complaints."""
    check_observation_space(whose, observations)
    check_action_space(whose, actions)
    facts: dict[str, Any]
    if isinstance(actions, spaces.Discrete):
        facts = {"discrete": True, "first_action": int(actions.start)}
    else:
        assert isinstance(actions, spaces.Box)
        facts = {"action_low": tuple(map(float, actions.low)), "action_high": tuple(map(float, actions.high))}
    return Spec(
        env_id=whose,
        observation_names=numbered("s", size_of(observations)),
        action_names=numbered("a", size_of(actions)),
        max_episode_steps=max_episode_steps,
        max_segment_steps=max_episode_steps,
        **facts,
    )


def numbered(letter: str, size: int) -> tuple[str, ...]:
    """Names for want of better ones: s0, s1, ..."""
    return tuple(f"{letter}{index}" for index in range(size))


# --- Actions in the environment's own range, and as learners know them


def own_action(spec: Spec, action: NDArray[np.float32]) -> Any:
    """What the environment's step() takes: a vector within its bounds, or the number of a discrete action; of
    a log with some choices, one of these."""
    if spec.choices:
        return np.array(spec.choices[int(np.argmax(action))])
    if spec.discrete:
        return spec.first_action + int(np.argmax(action))
    low, high = bounds(spec)
    own = low + (np.asarray(action, np.float64) + 1) / 2 * (high - low)
    return np.clip(own, low, high).astype(low.dtype)


def learners_actions(spec: Spec, actions: NDArray[Any]) -> NDArray[np.float32]:
    """[T, A] from actions [T, A] in the environment's own range, or numbers [T] of discrete ones."""
    given = np.asarray(actions)
    if spec.discrete:
        numbers = given.astype(np.int64) - spec.first_action
        if given.ndim != 1 or not ((numbers >= 0) & (numbers < spec.action_size)).all():
            last = spec.first_action + spec.action_size - 1
            raise UserError(f"actions must be numbers [T] from {spec.first_action} to {last}")
        return np.eye(spec.action_size, dtype=np.float32)[numbers]
    if given.ndim != 2 or given.shape[1] != spec.action_size:
        raise UserError(f"actions have shape {given.shape}: give [T, {spec.action_size}], one row per step")
    low, high = bounds(spec)
    return ((given - low) / (high - low) * 2 - 1).astype(np.float32)


def bounds(spec: Spec) -> tuple[NDArray[Any], NDArray[Any]]:
    """Low and high [A], in single precision where that holds them exactly, as most environments have them."""
    exact = np.array([spec.action_low, spec.action_high], np.float64)
    single = exact.astype(np.float32)
    low, high = single if np.array_equal(single, exact) else exact
    return low, high


# --- Names of dimensions, from the documentation of environments that do not carry them. MuJoCo's are beside
# its tasks; an environment of your own declares `observation_names` and `action_names`.


class Names(NamedTuple):
    observation: tuple[str, ...]
    action: tuple[str, ...]


AXES = ("x", "y", "z")


def each_named(phrase: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{phrase} {part}" for part in parts)


_OBJECT = (*AXES, *(f"quaternion {part}" for part in range(4)))
_OBJECTS = (*each_named("object 1", _OBJECT), *each_named("object 2", _OBJECT))
_FRAME = (*each_named("hand", AXES), "gripper opening", *_OBJECTS)

# All of MetaWorld's tasks have the same dimensions: this frame and the last one, then the goal.
METAWORLD = Names(
    (*_FRAME, *each_named("previous", _FRAME), *each_named("goal", AXES)),
    (*each_named("move", AXES), "gripper effort"),
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
        space = env.env.observation_space
        if isinstance(env, FlattenObservation):
            try:
                return None if isinstance(space, spaces.Box) else tuple(_entries("", space))
            except TypeError:
                return None
        if env.observation_space is not space:
            return None
        env = env.env
    return None


def _entries(part: str, space: spaces.Space[Any]) -> Iterator[str]:
    """Those of a part, in the order in which Gymnasium flattens it; TypeError where it has no fixed size."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _entries(f"{part} {key}".strip(), inner)
    elif isinstance(space, spaces.Discrete):
        yield from (f"{part or 's'}={int(space.start) + choice}" for choice in range(int(space.n)))
    elif isinstance(space, spaces.MultiDiscrete):
        places = _places(part, space.nvec.shape)
        for place, start, size in zip(places, space.start.flat, space.nvec.flat, strict=True):
            yield from _entries(place, spaces.Discrete(int(size), start=int(start)))
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        yield from _places(part, space.shape)
    else:
        raise TypeError(f"{space} has no fixed size")


def _places(part: str, shape: tuple[int, ...]) -> list[str]:
    """The part's own name where it is a single number."""
    if np.prod(shape) == 1:
        return [part or "s"]
    return [f"{part or 's'} {','.join(map(str, place))}" for place in np.ndindex(shape)]
