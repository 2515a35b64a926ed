"""What we ask of an environment: vectors in and out, declared facts that fit. Complaints name the fix."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apportion.core.errors import UserError
from apportion.core.spec import BLOCKS, Graph

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
            count = _combinations(space)
            choice = f"number its {count:,} combinations in a Discrete({count})"
            fix = f"{choice} by gymnasium.wrappers.TransformAction"
        raise UserError(
            f"{env_id} takes actions from a {kind}, but a Box of floats or a Discrete space is needed: {fix}"
        )
    if 0 in space.shape:
        raise UserError(f"{env_id} has no action to choose (shape {space.shape}): add at least one")
    if len(space.shape) != 1:
        raise UserError(
            f"{env_id} takes actions of shape {space.shape}, but a vector (one axis) is needed: "
            "reshape them with gymnasium.wrappers.TransformAction"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UserError(
            f"{env_id} has an action without bounds: declare finite ones in its action_space, "
            "which gymnasium.wrappers.RescaleAction can then map to [-1, 1] (ClipAction enforces them)"
        )
    if not (space.low < space.high).all():
        raise UserError(f"{env_id} has an action whose low bound is not below its high one: widen or drop it")


def _combinations(space: spaces.MultiDiscrete | spaces.MultiBinary) -> int:
    if isinstance(space, spaces.MultiDiscrete):
        return math.prod(space.nvec.ravel().tolist())
    return int(2 ** math.prod(space.shape))


def not_finite(observation: NDArray[Any], names: Sequence[str] = ()) -> str | None:
    """Its first dimension that is no finite number, in words; None where all are."""
    bad = np.flatnonzero(~np.isfinite(observation))
    if not bad.size:
        return None
    which = f"{bad[0]} ({names[bad[0]]})" if names else f"{bad[0]}"
    return f"{observation[bad[0]]} in dimension {which}: give its last good number instead"


def check_names(env_id: str, attribute: str, names: Any, size: int) -> None:
    if isinstance(names, str) or len(names) != size:
        raise UserError(f"{env_id} declares {attribute} = {names!r}: give exactly {size} names")


def check_graph(env_id: str, graph: Any, states: int, actions: int) -> None:
    """None is fine: few environments know their graph."""
    if graph is None:
        return
    if not isinstance(graph, Graph):
        found = type(graph).__name__
        raise UserError(f"{env_id} declares a true_graph of type {found}: make it apportion.core.spec.Graph")
    shapes = ((states,), (actions,), (states, states), (actions, states))
    for block, shape in zip(BLOCKS, shapes, strict=True):
        found = np.shape(getattr(graph, block))
        if found != shape:
            raise UserError(f"{env_id} declares true_graph.{block} of shape {found}: make it {shape}")
