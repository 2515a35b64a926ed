"""A training's state as a checkpoint holds it: the agent as a tree, everything else as named arrays.

Of the replay only the rows in use are written, so early checkpoints are small.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.data.replay import Replay
from apportion.envs.faults import Faults
from apportion.envs.wire import Arrays, under
from apportion.runs import checkpoint
from apportion.training import loop as train
from apportion.training import offline
from apportion.training.agent import AgentState
from apportion.training.loop import Saved
from apportion.training.settings import Config

_COUNTERS = ("rows", "steps", "segments", "oldest")


def write(folder: Path, step: int, saved: Saved, seconds: float, keep: int) -> None:
    """One checkpoint of everything."""
    raw = {f"replay/{name}": array for name, array in _filled(saved.replay).items()}
    raw |= {f"pending/{name}": array for name, array in saved.pending.items()}
    for lane, where in enumerate(saved.where):
        raw |= {f"where/{lane}/{name}": array for name, array in where.items()}
    meta = {"iteration": saved.iteration, "seconds": seconds, "faults": saved.faults}
    checkpoint.save(folder, step, saved.agent, meta, keep, raw)


def read(folder: Path, config: Config, spec: Spec) -> tuple[Saved, checkpoint.Loaded]:
    """The newest checkpoint that can be read, as training left it."""
    agent, replay = _template(config, spec)
    loaded = checkpoint.load(folder, agent)
    where = [under(loaded.raw, f"where/{lane}/") for lane in range(config.lanes)]
    saved = Saved(
        iteration=loaded.meta["iteration"],
        agent=loaded.tree,
        replay=_unfilled(under(loaded.raw, "replay/"), replay),
        pending=under(loaded.raw, "pending/"),
        where=where,
        faults=loaded.meta.get("faults") or Faults(config.lanes).to_dict(),  # older runs had none
    )
    return saved, loaded


def read_agent(
    folder: Path, config: Config, spec: Spec, at_most: int | None = None
) -> tuple[AgentState, checkpoint.Loaded]:
    """Only the agent of the newest checkpoint that can be read, of step `at_most` or before."""
    loaded = checkpoint.load(folder, _agent_template(config, spec), at_most)
    return loaded.tree, loaded


def _agent_template(config: Config, spec: Spec) -> AgentState:
    """Shapes and types of an agent; one that was fitted to logged episodes has no policy."""
    if config.has_policy:
        return _template(config, spec)[0]
    agent: AgentState = jax.eval_shape(lambda: offline.start(config, spec))
    return agent


def _template(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Shapes and types of a training's state, without its memory."""
    shapes: tuple[AgentState, Replay] = jax.eval_shape(lambda: train.start(config, spec))
    return shapes


def _filled(replay: Replay) -> Arrays:
    """The columns of the replay, cut to the rows (or segments) that any lane has written."""
    capacity = replay.paid.shape[1]
    # The row after the last one holds the next observation and is written too.
    rows = min(capacity, int(np.max(np.asarray(replay.rows))) + 1)
    segments = min(capacity, int(np.max(np.asarray(replay.segments))))

    def cut(name: str, column: Any) -> NDArray[Any]:
        if name in _COUNTERS:
            return np.asarray(column)
        wanted = segments if name.startswith("segment_") else rows
        # First to a power of two: on the device each size is a program of its own, which stays in memory.
        return np.ascontiguousarray(np.asarray(column[:, : 1 << wanted.bit_length()])[:, :wanted])

    return {name: cut(name, column) for name, column in replay._asdict().items()}


def _unfilled(columns: Arrays, template: Replay) -> Replay:
    """The columns of the replay at full size again."""

    def grow(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        column = columns[name]
        padding = [(0, wanted - have) for wanted, have in zip(shape, column.shape, strict=True)]
        return np.pad(column, padding)

    full: dict[str, Any] = {name: grow(name, leaf.shape) for name, leaf in template._asdict().items()}
    return Replay(**full)
