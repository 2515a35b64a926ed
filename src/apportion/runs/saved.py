"""A training's state as a checkpoint holds it: the agent as a tree, everything else as named arrays.

Of the replay only the rows in use are written, so early checkpoints are small.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from apportion.core.config import check, from_dict
from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.lane import ChunkWriter
from apportion.envs.messages import Arrays, strip_prefix
from apportion.runs import checkpoint
from apportion.runs.checkpoint import Stored, check_like
from apportion.runs.schemas import FaultsMeta, TrainingMeta
from apportion.training import loop as train
from apportion.training import offline
from apportion.training.agent import AgentState
from apportion.training.loop import Saved
from apportion.training.settings import Config

LOG = "metrics.jsonl"  # a copy of what was logged until then


class Read(NamedTuple):
    """A training as a checkpoint has it."""

    step: int
    saved: Saved
    seconds: float
    log: bytes
    skipped: list[str]  # one line for each newer checkpoint that could not be used


def write(
    folder: Path, step: int, saved: Saved, seconds: float, keep: int, settings: dict[str, Any], log: bytes
) -> None:
    """One checkpoint of everything, with the settings it was made by and the log that led to it."""
    raw = {f"replay/{name}": array for name, array in replays.filled(saved.replay).items()}
    raw |= {f"pending/{name}": array for name, array in saved.pending.items()}
    for lane, where in enumerate(saved.where):
        raw |= {f"where/{lane}/{name}": array for name, array in where.items()}
    meta: TrainingMeta = {
        "iteration": saved.iteration,
        "seconds": seconds,
        "settings": settings,
        "faults": from_dict(FaultsMeta, saved.faults),
    }
    checkpoint.save(folder, step, saved.agent, dict(meta), keep, raw, {LOG: log})


def read(folder: Path, config: Config, spec: Spec) -> Read:
    """The newest checkpoint that holds a whole training, as it was left."""
    agent, replay = _template(config, spec)

    def whole(stored: Stored) -> Read:
        meta = from_dict(TrainingMeta, stored.meta, "meta")
        wanted = meta["iteration"] * config.schedule.steps_per_iteration
        check(wanted == stored.step, f"iteration {meta['iteration']} ends at step {wanted}")
        check(LOG in stored.files, f"{LOG} is missing")
        saved = Saved(
            iteration=meta["iteration"],
            agent=checkpoint.restore(agent, stored),
            replay=_unfilled(strip_prefix(stored.raw, "replay/"), replay),
            pending=_pending(strip_prefix(stored.raw, "pending/"), config, spec),
            where=[
                _where(strip_prefix(stored.raw, f"where/{lane}/"), lane, spec) for lane in range(config.lanes)
            ],
            faults=_faults(meta["faults"], config.lanes),
        )
        return Read(stored.step, saved, meta["seconds"], stored.files[LOG], [])

    found, skipped = checkpoint.newest(folder, whole)
    return found._replace(skipped=skipped)


def settings(folder: Path) -> dict[str, Any] | None:
    """What the agents in the newest readable checkpoint were trained with; None where there is none."""
    meta, _ = checkpoint.newest_meta(folder)
    found = None if meta is None else meta.get("settings")
    return found if isinstance(found, dict) else None


def read_agent(
    folder: Path, config: Config, spec: Spec, at_most: int | None = None
) -> tuple[AgentState, checkpoint.Loaded]:
    """Only the agent of the newest checkpoint that can be read, of step `at_most` or before."""
    loaded = checkpoint.load(folder, _agent_template(config, spec), at_most)
    return loaded.tree, loaded


def _agent_template(config: Config, spec: Spec) -> AgentState:
    """Shapes and types of an agent; one that was fitted to logged episodes may have no policy."""
    if not config.from_log:
        return _template(config, spec)[0]
    agent: AgentState = jax.eval_shape(lambda: offline.start(config, spec))
    return agent


def _template(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Shapes and types of a training's state, without its memory."""
    shapes: tuple[AgentState, Replay] = jax.eval_shape(lambda: train.start(config, spec))
    return shapes


def _unfilled(columns: Arrays, template: Replay) -> Replay:
    """The columns of the replay at full size again, if they are those of such a replay."""
    for name in replays.present(template):
        check(name in columns, f"replay/{name} is missing")
    full = replays.unfilled(columns, template)
    for name, wanted in replays.present(template).items():
        check_like(f"replay/{name}", getattr(full, name), wanted)
    return full


def _pending(arrays: Arrays, config: Config, spec: Spec) -> Arrays:
    """The chunk for the next iteration, if it is one."""
    sizes = config.schedule.steps_per_iteration, spec.observation_size, spec.action_size
    for name, blank in ChunkWriter(*sizes).finish(np.zeros(spec.observation_size, np.float32)).items():
        check(name in arrays, f"pending/{name} is missing")
        check_like(f"pending/{name}", arrays[name], np.broadcast_to(blank, (config.lanes, *blank.shape)))
    return arrays


def _faults(data: FaultsMeta, lanes: int) -> dict[str, Any]:
    """What went wrong in lanes so far, if there are such."""
    for name in ("restarts", "reasons"):
        check(len(data[name]) == lanes, f"faults.{name} must have {lanes} entries")
    check(
        all(0 <= lane < lanes for lane, _ in data["frozen"]), "faults.frozen names a lane that is not there"
    )
    return dict(data)


def _where(arrays: Arrays, lane: int, spec: Spec) -> Arrays:
    """Where a lane's environment is, if it can be there."""
    steps = len(np.atleast_1d(arrays.get("actions", np.zeros(0))))
    wanted = {
        "episode": np.zeros((), np.int64),
        "restarts": np.zeros((), np.int64),
        "left": np.zeros((), np.bool_),
        "actions": np.zeros((min(steps, spec.max_episode_steps), spec.action_size), np.float32),
        "observation": np.zeros(spec.observation_size, np.float32),
    }
    for name, like in wanted.items():
        check(name in arrays, f"where/{lane}/{name} is missing")
        check_like(f"where/{lane}/{name}", arrays[name], like)
    return arrays
