"""Lanes on devices: one program for all lanes, split over as many devices as divide them evenly.

Lanes know nothing of each other, so devices never talk. On one device this is a plain vmap; one lane goes
without: products of matrices with an axis of one take up to three times as long on a CPU.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jaxtyping import Array, Int
from numpy.typing import NDArray

Tree = TypeVar("Tree")

_LANES = PartitionSpec("lanes")  # type: ignore[no-untyped-call]
_IN_GRAPHS = "xla_gpu_enable_command_buffer"  # XLA's option: what it puts into CUDA graphs
_ALSO_LOOPS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"


def used_by(lanes: int) -> int:
    """How many devices work on so many lanes: the most that can take equally many."""
    return max(n for n in range(1, min(lanes, jax.device_count()) + 1) if lanes % n == 0)


def sharding(lanes: int) -> Sharding:
    """Where arrays [L, ...] lie: an equal share of the lanes on each device."""
    if used_by(lanes) == 1:
        return SingleDeviceSharding(jax.devices()[0])
    return NamedSharding(_mesh(lanes), _LANES)


def spread(tree: Tree, lanes: int) -> Tree:
    """Arrays [L, ...] to their devices; those that are there already stay as they are."""
    return jax.device_put(tree, sharding(lanes))


def over_lanes(function: Callable[..., Any], lanes: int, shared: tuple[int, ...] = ()) -> Callable[..., Any]:
    """A function of one lane for all of them; arguments at the places `shared` have no axis of lanes."""

    def over(*arguments: Any) -> Any:
        if lanes > 1:
            axes = [None if place in shared else 0 for place in range(len(arguments))]
            return jax.vmap(function, axes)(*arguments)
        mine = [x if n in shared else jax.tree.map(lambda x: x[0], x) for n, x in enumerate(arguments)]
        # Or XLA copies columns of a replay that it writes into.
        mine = jax.lax.optimization_barrier(mine)  # type: ignore[no-untyped-call]
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), function(*mine))

    return over


def compiled(function: Callable[..., Any], lanes: int, donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """A function of one lane as one program over all of them; memory of `donate` arguments is used again."""
    program = over_lanes(function, lanes)
    if used_by(lanes) > 1:
        program = jax.shard_map(
            program, mesh=_mesh(lanes), in_specs=_LANES, out_specs=_LANES, check_vma=False
        )
    return jax.jit(program, donate_argnums=donate, compiler_options=_loops_in_graphs())


@cache
def _loops_in_graphs() -> dict[str, str]:
    """Let a GPU run whole loops by itself, as CUDA graphs: their turns do not wait for a busy host.

    Nothing where there is no GPU, where XLA does not know these options, and where its user has chosen.
    """
    options = {_IN_GRAPHS: _ALSO_LOOPS}
    if jax.default_backend() != "gpu" or _IN_GRAPHS in os.environ.get("XLA_FLAGS", ""):
        return {}
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


# Compiled once for all lanes, and as one program: by itself, each array would be one.
@jax.jit
def one_lane(tree: Any, lane: int | Int[Array, ""]) -> Any:
    """One lane's part of arrays [L, ...]."""
    return jax.tree.map(lambda x: x[lane], tree)


@jax.jit
def with_lane(tree: Any, lane: int | Int[Array, ""], part: Any) -> Any:
    """Arrays [L, ...] with another part for one lane."""
    return jax.tree.map(lambda x, new: x.at[lane].set(new), tree, part)


def in_lanes(lanes: NDArray[np.bool_], yes: Tree, no: Tree) -> Tree:
    """Arrays [L, ...] on the host: those of one tree in some lanes, in the others those of another."""

    def one(yes: NDArray[Any], no: NDArray[Any]) -> NDArray[Any]:
        return np.where(lanes.reshape(-1, *[1] * (np.ndim(yes) - 1)), yes, no)

    return jax.tree.map(one, yes, no)


def advice(lanes: int) -> str | None:
    """What to say where devices stay idle that could work."""
    used, useful = used_by(lanes), min(lanes, jax.device_count())
    if used == useful:
        return None
    more = -(-lanes // useful) * useful
    return f"{lanes} lanes do not divide over {useful} devices: {used} used. With {more}, all would be."


def _mesh(lanes: int) -> Mesh:
    return Mesh(jax.devices()[: used_by(lanes)], ("lanes",))
