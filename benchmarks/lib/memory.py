"""Memory: what one lane's replay and agent take, and the most that this process has used."""

import resource
import sys
from typing import Any

import jax

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.training.loop import of_lane, size_of
from lib import workload
from lib.workload import SIZES


def replay_bytes(spec: Spec, replay_steps: int, chunk_steps: int = 100) -> int:
    """Bytes of a replay for so many steps."""
    capacity = replays.capacity_for(spec, replay_steps, chunk_steps)
    return size_of(jax.eval_shape(lambda: replays.init(spec, capacity)))


def table(replay_steps: int) -> list[dict[str, Any]]:
    """One row for each size, with GRD and SAC."""
    config = workload.settings("grd", replay_steps=replay_steps)
    rows = []
    for name, size in SIZES.items():
        kept = of_lane(config, workload.made_up_spec(size))
        taken = {"replay_bytes": kept.replay, "agent_bytes": kept.agent}
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
