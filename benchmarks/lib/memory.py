"""Memory: what one lane's replay and agent take, and the most that this process has used."""

import resource
import sys
from typing import Any

import jax

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.training import loop
from apportion.training.settings import Config
from lib import workload
from lib.workload import SIZES


def replay_bytes(spec: Spec, replay_steps: int, chunk_steps: int = 100) -> int:
    """Bytes of a replay for so many steps."""
    capacity = replays.capacity_for(spec, replay_steps, chunk_steps)
    return size_of(jax.eval_shape(lambda: replays.init(spec, capacity)))


def of_lane(config: Config, spec: Spec) -> dict[str, int]:
    """Bytes of one lane's replay and agent, from shapes alone: nothing is allocated."""
    agent, replay = jax.eval_shape(lambda: loop.start(config, spec))
    trees = {"replay_bytes": replay, "agent_bytes": agent}
    return {name: size_of(tree) // config.lanes for name, tree in trees.items()}


def size_of(tree: Any) -> int:
    """Bytes of all arrays of a tree; random keys are counted by what they are made of."""
    return sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(tree))


def table(replay_steps: int) -> list[dict[str, Any]]:
    """One row for each size, with GRD and SAC."""
    config = workload.settings("grd", replay_steps=replay_steps)
    rows = []
    for name, size in SIZES.items():
        taken = of_lane(config, workload.made_up_spec(size))
        rows.append({"size": name, **size._asdict(), "replay_steps": replay_steps, **taken})
    return rows


def peaks() -> dict[str, int | None]:
    """The most bytes in use so far: of this process, and of the first device where it keeps count."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "process_bytes": most if sys.platform == "darwin" else most * 1024,
        "device_bytes": stats.get("peak_bytes_in_use"),
    }
