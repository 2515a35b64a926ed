"""A training's state as a checkpoint holds it: the agent as a tree, everything else as named arrays.

Of the replay only the rows in use are written, so early checkpoints are small.
"""

from pathlib import Path

import jax

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.faults import Faults
from apportion.envs.wire import under
from apportion.runs import checkpoint
from apportion.training import loop as train
from apportion.training import offline
from apportion.training.agent import AgentState
from apportion.training.loop import Saved
from apportion.training.settings import Config


def write(folder: Path, step: int, saved: Saved, seconds: float, keep: int) -> None:
    """One checkpoint of everything."""
    raw = {f"replay/{name}": array for name, array in replays.filled(saved.replay).items()}
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
        replay=replays.unfilled(under(loaded.raw, "replay/"), replay),
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
