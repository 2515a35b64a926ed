"""Checkpoints: a pytree of arrays, and a note beside it, in one file `step_000000020000.safetensors`.

It is never half written: a crash at any moment leaves the earlier ones as they were. What is damaged, or does
not fit, is passed over for the one before. That of a training has its agents, each lane's best one so far,
and everything else; of the replay only the rows in use, so early checkpoints are small.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check, conform, from_dict, one_line
from apportion.core.files import memory
from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.lane import blank_chunk
from apportion.envs.messages import strip_prefix
from apportion.runs import atomic
from apportion.runs.atomic import Arrays, place
from apportion.runs.atomic import steps as steps
from apportion.training import devices, offline
from apportion.training import loop as train
from apportion.training.agent import AgentState
from apportion.training.evaluate import Report
from apportion.training.loop import Saved
from apportion.training.settings import Config

FORMAT = 4

T = TypeVar("T")


class Loaded(NamedTuple):
    """A checkpoint whose checksum is right."""

    step: int
    tree: Any  # dotted path → array; or a template's structure, where random keys are JAX keys again
    meta: dict[str, Any]
    keys: dict[str, str]  # leaves that are random keys, and their kind
    skipped: list[str]  # one line for each newer checkpoint that could not be used


def save(folder: Path, step: int, tree: Any, meta: dict[str, Any], keep: int) -> Path:
    """Writes one checkpoint, then removes all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays, keys = _flatten(tree)
    path = place(folder, step)
    atomic.write_arrays(path, arrays, {"format": FORMAT, "keys": keys, "meta": meta})
    prune(folder, keep)
    return path


def prune(folder: Path, keep: int) -> None:
    """Removes all checkpoints but the newest `keep`."""
    for old in steps(folder)[:-keep]:
        place(folder, old).unlink()


def load(folder: Path, template: Any = None) -> Loaded:
    """Reads the newest valid checkpoint into the template's structure; a part of the saved tree will do.

    The template's leaves are arrays or jax.ShapeDtypeStruct. Without one the tree is a dict of arrays.
    """
    return newest(
        folder, lambda found: found if template is None else found._replace(tree=restore(template, found))
    )


def newest(folder: Path, read: Callable[[Loaded], T]) -> T:
    """What `read` makes of the newest checkpoint that is not damaged and that it accepts; it refuses one by a
    UserError."""

    def whole(path: Path, step: int, skipped: list[str]) -> T:
        arrays, note = atomic.read_arrays(path, memory())
        return read(Loaded(step, arrays, _checked(note)["meta"], note["keys"], skipped))

    found, skipped = _first(folder, whole)
    if found is not None:
        return found
    why = f"no valid checkpoint in {folder}, start a new run: {'; '.join(skipped)}"
    raise UserError(why if skipped else f"no checkpoint in {folder}: start a new run")


def newest_meta(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The meta of the newest checkpoint that has a readable one, and a line for each that has not; the arrays
    are not looked at."""
    return _first(folder, lambda path, *_: _checked(atomic.read_note(path))["meta"])


def _first(folder: Path, read: Callable[[Path, int, list[str]], T]) -> tuple[T | None, list[str]]:
    """Of the newest checkpoint that can be read, and a line for each that cannot; `read` is given these."""
    skipped: list[str] = []
    for step in reversed(steps(folder)):
        try:
            return read(place(folder, step), step, skipped), skipped
        except (UserError, OSError, ValueError) as error:
            skipped.append(f"checkpoint {place(folder, step).stem} skipped: {one_line(error)}")
    return None, skipped


def set_aside(folder: Path, after: int) -> list[str]:
    """Renames checkpoints of later steps, which could not be used, so that a resumed run does not replace
    them; a line for each says where it is."""
    notes = []
    for path in [place(folder, step) for step in steps(folder) if step > after]:
        aside, number = folder / f"damaged_{path.name}", 1
        while aside.exists():
            number += 1
            aside = folder / f"damaged_{path.stem}_{number}{path.suffix}"
        os.rename(path, aside)
        notes.append(f"{path.name} is kept as {aside}: delete it when you do not need it")
    return notes


def restore(template: Any, loaded: Loaded) -> Any:
    """Puts stored leaves into the template's structure, and refuses any of another shape or type."""
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    leaves = [_leaf(_dotted(path), leaf, loaded) for path, leaf in wanted]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _flatten(tree: Any) -> tuple[Arrays, dict[str, str]]:
    """Leaves by dotted path, on the host, and the kinds of those that are random keys."""
    named = [(_dotted(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in named if _is_key(leaf)}
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for _, leaf in named]
    arrays: Arrays = {}
    for (name, leaf), array in zip(named, jax.device_get(leaves), strict=True):
        if name in arrays:
            raise ValueError(f"two leaves are named {name!r}: rename one of the dictionary keys")
        arrays[name] = np.asarray(array)
        if arrays[name].dtype.kind in "OUSMm":
            raise TypeError(f"leaf {name!r} is a {type(leaf).__name__}: checkpoints hold arrays of numbers")
    return arrays, keys


def _leaf(name: str, wanted: Any, loaded: Loaded) -> Any:
    if name not in loaded.tree:
        raise UserError(f"{name} is missing: another version of apportion wrote it")
    found: Any = loaded.tree[name]
    if name in loaded.keys:
        try:
            found = jax.random.wrap_key_data(found, impl=loaded.keys[name])
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} is no random key") from error
    if not isinstance(wanted, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        wanted = np.asarray(wanted)
    if (found.shape, found.dtype.name) != (wanted.shape, wanted.dtype.name):
        raise UserError(
            f"{name} is {found.dtype.name}{list(found.shape)}, "
            f"this program wants {wanted.dtype.name}{list(wanted.shape)}"
        )
    return found


def _checked(note: dict[str, Any]) -> dict[str, Any]:
    """What stands beside the arrays of a checkpoint, if it is of one."""
    if note.get("format") != FORMAT:
        raise UserError(f"its format is {note.get('format')}, this version of apportion reads {FORMAT}")
    conform(dict[str, str], note.get("keys"), "keys")
    conform(dict[str, Any], note.get("meta"), "meta")
    return note


def _dotted(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


# --- A training's state


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
    """Each lane's agent at its best evaluation: lanes are trainings of their own, so at a step of its own."""

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
    return devices.in_lanes(improved, Best(report.agent, steps, returns), best)


def write_training(
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
    tree = {
        "agent": saved.agent,
        "replay": replays.filled(saved.replay),
        "pending": saved.pending,
        "where": saved.where,
        "log": np.frombuffer(log, np.uint8),
        **({} if best is None else {"best": best.agent}),
    }
    when = {} if best is None else {"best": {"steps": best.steps, "returns": best.returns}}
    meta = {"iteration": saved.iteration, "seconds": seconds, "settings": settings, "faults": saved.faults}
    save(folder, step, tree, {**meta, **when}, keep)


def read_training(folder: Path, config: Config, spec: Spec) -> Read:
    """The newest checkpoint that holds a whole training, as it was left."""
    agent, replay = _template(config, spec)
    chunk = blank_chunk(spec, config.schedule.steps_per_iteration)
    ahead = {name: np.broadcast_to(blank, (config.lanes, *blank.shape)) for name, blank in chunk.items()}

    def whole(loaded: Loaded) -> Read:
        meta = from_dict(Meta, loaded.meta, "meta")
        faults = meta["faults"]
        wanted = meta["iteration"] * config.schedule.steps_per_iteration
        check(wanted == loaded.step, f"iteration {meta['iteration']} ends at step {wanted}")
        check("log" in loaded.tree, "log is missing")
        imagined = "agent.imagination.updates" in loaded.tree
        check(not imagined, "it learned from imagined steps: an earlier version of apportion resumes it")
        for name, entries in (("restarts", faults["restarts"]), ("reasons", faults["reasons"])):
            check(len(entries) == config.lanes, f"faults.{name} must have {config.lanes} entries")
        inside = all(0 <= lane < config.lanes for lane, _ in faults["frozen"])
        check(inside, "faults.frozen names a lane that is not there")
        columns = replays.unfilled(strip_prefix(loaded.tree, "replay."), replay)
        grown = loaded.tree | {f"replay.{name}": column for name, column in columns.items()}
        where = [_where(loaded.tree, lane, spec) for lane in range(config.lanes)]
        template = {"agent": agent, "replay": replay, "pending": ahead, "where": where}
        found = restore(template, loaded._replace(tree=grown))
        saved = Saved(iteration=meta["iteration"], faults=dict(faults), **found)
        best = None
        if "best" in meta:
            _check_best(meta["best"], config.lanes)
            returns = [-np.inf if value is None else value for value in meta["best"]["returns"]]
            agents = restore({"best": agent}, loaded)["best"]
            best = Best(agents, np.array(meta["best"]["steps"], np.int64), np.array(returns, np.float64))
        return Read(loaded.step, saved, best, meta["seconds"], loaded.tree["log"].tobytes(), loaded.skipped)

    return newest(folder, whole)


def trained_settings(folder: Path) -> dict[str, Any] | None:
    """What the agents in the newest readable checkpoint were trained with; None where there is none."""
    found = (newest_meta(folder)[0] or {}).get("settings")
    return found if isinstance(found, dict) else None


def read_agent(folder: Path, config: Config, spec: Spec, best: bool = False) -> tuple[AgentState, Loaded]:
    """Only the agent of the newest checkpoint that can be read, or the best one that it has; one that was
    fitted to logged episodes may have no policy."""
    name = "best" if best else "agent"
    if config.from_log:
        template: AgentState = jax.eval_shape(lambda: offline.start(config, spec))
    else:
        template = _template(config, spec)[0]
    loaded = load(folder, {name: template})
    return loaded.tree[name], loaded


def best_moments(folder: Path, lanes: int) -> list[dict[str, Any]] | None:
    """Step and return of each lane's best evaluation, by the newest checkpoint; None where it has none."""
    meta = newest_meta(folder)[0]
    if meta is None or "best" not in meta:
        return None
    found = from_dict(BestMeta, meta["best"], "best")
    _check_best(found, lanes)
    pairs = zip(found["steps"], found["returns"], strict=True)
    return [{"step": step, "return": value} for step, value in pairs]


def _check_best(found: BestMeta, lanes: int) -> None:
    fits = len(found["steps"]) == len(found["returns"]) == lanes
    check(fits, f"best has not {lanes} steps and returns, one for each lane")


def _template(config: Config, spec: Spec) -> tuple[AgentState, Replay]:
    """Shapes and types of a training's state, without its memory."""
    shapes: tuple[AgentState, Replay] = jax.eval_shape(lambda: train.start(config, spec))
    return shapes


def _where(arrays: Arrays, lane: int, spec: Spec) -> Arrays:
    """Shapes and types of where a lane's environment can be, after as many actions as are stored."""
    steps = len(np.atleast_1d(arrays.get(f"where.{lane}.actions", np.zeros(0))))
    return {
        "episode": np.zeros((), np.int64),
        "restarts": np.zeros((), np.int64),
        "left": np.zeros((), np.bool_),
        "actions": np.zeros((min(steps, spec.max_episode_steps), spec.action_size), np.float32),
        "observation": np.zeros(spec.observation_size, np.float32),
    }
