"""A training's state in a checkpoint: its agents, each lane's best one so far, and everything else as arrays.

Lanes are trainings of their own, so each is best, by the return of its evaluations, at a step of its own. Of
the replay only the rows in use are written, so early checkpoints are small.
"""

from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check, from_dict
from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.lane import blank_chunk
from apportion.envs.messages import Arrays, strip_prefix
from apportion.runs import checkpoint
from apportion.runs.checkpoint import Loaded, check_like
from apportion.training import loop as train
from apportion.training import offline
from apportion.training.agent import AgentState
from apportion.training.evaluate import Report
from apportion.training.loop import Saved
from apportion.training.settings import Config

_LOG = "log"  # the array with the bytes of what was logged until then


class FaultsMeta(TypedDict):
    """What went wrong in the lanes of a training, as `Faults.to_dict` says it."""

    restarts: tuple[int, ...]
    reasons: tuple[str | None, ...]
    frozen: tuple[tuple[int, int], ...]  # lane, and the iteration from which on it stands still


class BestMeta(TypedDict):
    """When each lane was best."""

    steps: tuple[int, ...]
    returns: tuple[float | None, ...]  # None while every return was NaN


class Meta(TypedDict):
    """What a checkpoint of a training says beside its arrays."""

    iteration: int
    seconds: float
    settings: dict[str, Any]
    faults: FaultsMeta
    best: NotRequired[BestMeta]  # once there was an evaluation


class Best(NamedTuple):
    """Each lane's agent at its best evaluation."""

    agent: AgentState  # [L, ...] on the host
    steps: NDArray[np.int64]  # [L]
    returns: NDArray[np.float64]  # [L]; -inf while every return was NaN


class Read(NamedTuple):
    """A training as a checkpoint has it."""

    step: int
    saved: Saved
    best: Best | None
    seconds: float
    log: bytes
    skipped: list[str]  # one line for each newer checkpoint that could not be used


def better(best: Best | None, report: Report) -> Best:
    """The best so far, with one more evaluation. Of equal ones the first stays."""
    steps = np.full(len(report.evaluation.returns), report.step, np.int64)
    returns = np.nan_to_num(report.evaluation.returns, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    if best is None:
        return Best(jax.tree.map(np.array, report.agent), steps, returns)
    improved = returns > best.returns
    if not improved.any():
        return best

    def choose(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        return np.where(improved.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

    now: Best = jax.tree.map(choose, best, Best(report.agent, steps, returns))
    return now


def write(
    folder: Path,
    step: int,
    saved: Saved,
    best: Best | None,
    seconds: float,
    keep: int,
    settings: dict[str, Any],
    log: bytes,
) -> None:
    """One checkpoint of everything, with the settings it was made by and the log that led to it."""
    raw = {f"replay/{name}": array for name, array in replays.filled(saved.replay).items()}
    raw |= {f"pending/{name}": array for name, array in saved.pending.items()}
    raw |= {
        f"where/{lane}/{name}": array
        for lane, where in enumerate(saved.where)
        for name, array in where.items()
    }
    raw[_LOG] = np.frombuffer(log, np.uint8)
    tree = {"agent": saved.agent, **({} if best is None else {"best": best.agent})}
    meta: Meta = {
        "iteration": saved.iteration,
        "seconds": seconds,
        "settings": settings,
        "faults": from_dict(FaultsMeta, saved.faults),
    }
    when = {} if best is None else {"best": {"steps": best.steps, "returns": best.returns}}
    checkpoint.save(folder, step, tree, {**meta, **when}, keep, raw)


def read(folder: Path, config: Config, spec: Spec) -> Read:
    """The newest checkpoint that holds a whole training, as it was left."""
    agent, replay = _template(config, spec)
    chunk = blank_chunk(spec, config.schedule.steps_per_iteration)
    ahead = {name: np.broadcast_to(blank, (config.lanes, *blank.shape)) for name, blank in chunk.items()}

    def whole(loaded: Loaded) -> Read:
        meta = from_dict(Meta, loaded.meta, "meta")
        wanted = meta["iteration"] * config.schedule.steps_per_iteration
        check(wanted == loaded.step, f"iteration {meta['iteration']} ends at step {wanted}")
        check(_LOG in loaded.raw, f"{_LOG} is missing")
        saved = Saved(
            iteration=meta["iteration"],
            agent=checkpoint.restore({"agent": agent}, loaded)["agent"],
            replay=_unfilled(strip_prefix(loaded.raw, "replay/"), replay),
            pending=_fitting(loaded.raw, "pending/", ahead),
            where=[_where(loaded.raw, f"where/{lane}/", spec) for lane in range(config.lanes)],
            faults=_faults(meta["faults"], config.lanes),
        )
        best = None
        if "best" in meta:
            found = _best_meta(meta, config.lanes)
            returns = [-np.inf if value is None else value for value in found["returns"]]
            agents = checkpoint.restore({"best": agent}, loaded)["best"]
            best = Best(agents, np.array(found["steps"], np.int64), np.array(returns, np.float64))
        return Read(loaded.step, saved, best, meta["seconds"], loaded.raw[_LOG].tobytes(), [])

    found, skipped = checkpoint.newest(folder, whole)
    return found._replace(skipped=skipped)


def settings(folder: Path) -> dict[str, Any] | None:
    """What the agents in the newest readable checkpoint were trained with; None where there is none."""
    meta, _ = checkpoint.newest_meta(folder)
    found = None if meta is None else meta.get("settings")
    return found if isinstance(found, dict) else None


def read_agent(folder: Path, config: Config, spec: Spec, best: bool = False) -> tuple[AgentState, Loaded]:
    """Only the agent of the newest checkpoint that can be read, or the best one that it has."""
    name = "best" if best else "agent"
    loaded = checkpoint.load(folder, {name: _agent_template(config, spec)})
    return loaded.tree[name], loaded


def best_moments(folder: Path, lanes: int) -> list[dict[str, Any]] | None:
    """Step and return of each lane's best evaluation, by the newest checkpoint; None where it has none."""
    meta, _ = checkpoint.newest_meta(folder)
    if meta is None or "best" not in meta:
        return None
    found = _best_meta(meta, lanes)
    pairs = zip(found["steps"], found["returns"], strict=True)
    return [{"step": step, "return": value} for step, value in pairs]


def _best_meta(meta: Any, lanes: int) -> BestMeta:
    found = from_dict(BestMeta, meta["best"], "best")
    fits = len(found["steps"]) == len(found["returns"]) == lanes
    check(fits, f"best has not {lanes} steps and returns, one for each lane")
    return found


def _agent_template(config: Config, spec: Spec) -> AgentState:
    """Shapes and types of an agent; one that was fitted to logged episodes may have no policy."""
    if config.from_log:
        fitted: AgentState = jax.eval_shape(lambda: offline.start(config, spec))
        return fitted
    return _template(config, spec)[0]


def _template(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Shapes and types of a training's state, without its memory."""
    shapes: tuple[AgentState, Replay] = jax.eval_shape(lambda: train.start(config, spec))
    return shapes


def _fitting(arrays: Arrays, prefix: str, wanted: Arrays) -> Arrays:
    """Those under a prefix, if they are of the wanted shapes and types."""
    for name, like in wanted.items():
        check(prefix + name in arrays, f"{prefix}{name} is missing")
        check_like(prefix + name, arrays[prefix + name], like)
    return strip_prefix(arrays, prefix)


def _unfilled(columns: Arrays, template: Replay) -> Replay:
    """The columns of the replay at full size again, if they are those of such a replay."""
    for name in replays.present(template):
        check(name in columns, f"replay/{name} is missing")
    full = replays.unfilled(columns, template)
    for name, wanted in replays.present(template).items():
        check_like(f"replay/{name}", getattr(full, name), wanted)
    return full


def _where(arrays: Arrays, prefix: str, spec: Spec) -> Arrays:
    """Where a lane's environment is, if it can be there."""
    steps = len(np.atleast_1d(arrays.get(f"{prefix}actions", np.zeros(0))))
    wanted: Arrays = {
        "episode": np.zeros((), np.int64),
        "restarts": np.zeros((), np.int64),
        "left": np.zeros((), np.bool_),
        "actions": np.zeros((min(steps, spec.max_episode_steps), spec.action_size), np.float32),
        "observation": np.zeros(spec.observation_size, np.float32),
    }
    return _fitting(arrays, prefix, wanted)


def _faults(data: FaultsMeta, lanes: int) -> dict[str, Any]:
    """What went wrong in lanes so far, if there are such."""
    for name in ("restarts", "reasons"):
        check(len(data[name]) == lanes, f"faults.{name} must have {lanes} entries")
    inside = all(0 <= lane < lanes for lane, _ in data["frozen"])
    check(inside, "faults.frozen names a lane that is not there")
    return dict(data)
