"""The run folder: one place for all that a training leaves behind, and the only thing that reports read."""

import errno
import fcntl
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import jax
import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.core import files
from apportion.core.config import T, UserError, check, conform, from_dict
from apportion.core.spec import Spec
from apportion.data.columns import Choice
from apportion.data.encoding import Encoding
from apportion.runs import checkpoint, logs, snapshots
from apportion.runs.atomic import Arrays, drop_after, place, read_json, write_arrays, write_json
from apportion.runs.snapshots import Episode as Episode
from apportion.runs.snapshots import Sizes
from apportion.training.outcomes import Outcomes
from apportion.training.settings import MOST_LANES

# --- One writer at a time


LOCK = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Holds a folder for writing; `what` names it to others, and the lock our process. The kernel lets go of
    it if the process dies in any way.

    A forked child keeps the lock of its parent alive; spawned ones do not.
    """
    descriptor = files.own(folder / LOCK, os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode().strip() or "unknown"
            raise UserError(f"{what} is being written by process {owner}: wait for it, or stop it") from error
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:  # some network disks: better unlocked than unusable
                raise
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether somebody on this machine holds a folder just now."""
    try:
        with files.opened(folder / LOCK, files.JSON_BYTES) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # none there, or a disk without locks
        return False
    return False


PACKAGES = ("jax", "jaxlib", "optax", "equinox", "gymnasium", "mujoco", "numpy")
# What every run says of itself in config.json.
_NEEDED = {"env.id": str, "method.name": str, "backbone.name": str, "schedule.steps": int, "seed": int}
_NEEDED |= {"lanes": int}


class FaultFile(TypedDict):
    """A lane that had faults, in status.json."""

    lane: int
    seed: int
    restarts: int
    frozen_since: int | None
    reason: str


class StatusFile(TypedDict):
    """status.json."""

    state: str
    step: int
    seconds: float
    lines: NotRequired[int]  # that metrics.jsonl has by now, at the least
    faults: NotRequired[tuple[FaultFile, ...]]


class DataFile(TypedDict):
    """data.json: what a run was fitted to, and how that became numbers."""

    data: str
    columns: Choice | None
    encoding: Encoding
    fitting: dict[str, Any]
    episodes: int
    held_out: int
    outcomes: Outcomes
    answers: tuple[float, float] | None
    notes: tuple[str, ...]


class LaneWorth(TypedDict):
    """Of one of them."""

    episodes: int
    behaviour: float
    spread: float
    policy: float
    policy_low: float
    policy_high: float
    untried: float
    importance: float | None
    effective_episodes: float
    single_action: bool
    supported: bool
    verdict: str
    sentence: str


class WorthFile(TypedDict):
    """offline_evaluation.json: of each lane what its policy is worth by the log."""

    run: str
    data: str
    policy: str | None
    seed: int
    lanes: tuple[LaneWorth, ...]


VersionsFile = dict[str, str | bool | tuple[str, ...] | None]

# --- The folder


class _Within:
    """A path within a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Any, of: Any) -> Path:
        path: Path = run.path / self.name
        return path


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and how its small files are written and read."""

    path: Path
    env: str | None = None  # the id of its environment here, where that was given again
    trusted: bool = True  # whether code that it names may be imported: its environment, a user's own method

    config = _Within("config.json")
    versions = _Within("versions.json")
    spec = _Within("spec.json")
    metrics = _Within("metrics.jsonl")
    status = _Within("status.json")
    data = _Within("data.json")  # trainings have none
    credit = _Within("credit.safetensors")  # what the log tells of single steps,
    worth = _Within("offline_evaluation.json")  # and what policies are worth by it
    tensorboard = _Within("tensorboard")
    edges = _Within(snapshots.EDGES)
    episodes = _Within("episodes")
    checkpoints = _Within("checkpoints")

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], spec: Spec) -> "RunFolder":
        """Starts a run folder; it must not hold anything yet."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            held = is_held(path)
            check(not held, f"run folder {path} is being written by somebody else: choose another --out")
            saved = any((path / "checkpoints").glob("step_*"))
            fix = f"continue it with `apportion resume {path}`" if saved else "delete it"
            raise UserError(f"run folder {path} exists: choose another --out, or {fix}")
        run = cls(path)
        for folder in run.folders:
            folder.mkdir(parents=True, exist_ok=True)
        write_json(run.spec, spec.to_dict())
        write_json(run.versions, versions())
        write_json(run.config, config)  # last: a folder with a config is a whole one
        return run

    @classmethod
    def open(cls, path: Path, env: str | None = None, trusted: bool = True) -> "RunFolder":
        """An existing run folder."""
        run = cls(path.absolute(), env, trusted)  # an environment may go to another folder
        for file in (run.config, run.spec):
            if not file.is_file():
                raise UserError(
                    f"{path} is not a run folder (it has no {file.name}): "
                    "name a folder that `apportion train` wrote"
                )
        for folder in run.folders:
            check(not folder.is_symlink(), f"{folder} is a link: copy into its place what it points to")
        return run

    def need_trust(self, what: str) -> None:
        """Complain of what cannot be had without importing code that the folder names."""
        check(self.trusted, f"{what} of {self.path} is not loaded: leave out --no-env if you trust it")

    @property
    def folders(self) -> tuple[Path, ...]:
        """Those within it."""
        return self.edges, self.episodes, self.checkpoints, self.tensorboard

    @property
    def names(self) -> set[str]:
        """Of all that a run writes into its folder."""
        return {each.name for each in vars(RunFolder).values() if isinstance(each, _Within)} | {LOCK}

    def read_config(self) -> dict[str, Any]:
        """Every setting, as config.json has it."""
        data = read_json(self.config, edited=True)
        with _blamed_on(self.config):
            for name, hint in _NEEDED.items():
                section, _, key = name.rpartition(".")
                within = conform(dict[str, Any], data.get(section), section) if section else data
                conform(hint, within.get(key), name)
            check(1 <= data["lanes"] <= MOST_LANES, f"lanes={data['lanes']} must be from 1 to {MOST_LANES:,}")
        return data

    def read_spec(self) -> Spec:
        """What is known about the environment."""
        data = read_json(self.spec)
        with _blamed_on(self.spec):
            return from_dict(Spec, data)

    def read_status(self) -> dict[str, Any]:
        """How far the run is, as it was said last; empty where nobody can tell."""
        return self._optional(self.status, StatusFile)[0]

    def read_versions(self) -> dict[str, Any]:
        """What the run was made with; empty where nobody can tell."""
        return self._optional(self.versions, VersionsFile)[0]

    def read_data(self) -> DataFile | None:
        """What it was fitted to; None for a training."""
        return self._checked(self.data, DataFile)

    def read_worth(self) -> WorthFile | None:
        """What its policies are worth by the log they were learned from; None where it has none."""
        return self._checked(self.worth, WorthFile)

    def _checked(self, path: Path, schema: type[T]) -> T | None:
        if not path.exists():
            return None
        data = read_json(path)
        with _blamed_on(path):
            return from_dict(schema, data)

    def _optional(self, path: Path, hint: Any) -> tuple[dict[str, Any], list[str]]:
        """What a file says, or nothing and a line on it."""
        if not path.exists():
            return {}, [f"{path} is missing"]
        try:
            data = read_json(path)
            with _blamed_on(path):
                conform(hint, data, "")
            return data, []
        except UserError as error:
            return {}, [str(error)]

    def examine_metrics(self) -> logs.Logged:
        """All of metrics.jsonl; what is damaged or missing is left out, with a note."""
        found = logs.examine(self.metrics, self.read_config()["lanes"])
        promised, count = self.read_status().get("lines", 0), len(found.lines)
        lost = [f"{self.metrics} has {count} of {promised} lines"] if count < promised else []
        return found._replace(notes=found.notes or lost)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Its entries by step."""
        return self.examine_metrics().entries

    def evaluations(self) -> list[dict[str, Any]]:
        """Those of them that are of evaluations."""
        return [entry for entry in self.read_metrics() if entry["kind"] == "eval"]

    def sizes(self) -> Sizes:
        """What the arrays of this run must fit."""
        spec = self.read_spec()
        return Sizes(self.read_config()["lanes"], spec.observation_size, spec.action_size)

    def write_edges(self, step: int, edges: Mapping[str, NDArray[Any]]) -> None:
        """Stores edge probabilities [L, ...] at one step; half precision is plenty for a page, but does not
        lift an edge that is off (P < 0.5) to the threshold by rounding."""
        below = np.nextafter(np.float16(0.5), np.float16(0))
        halves = {name: np.asarray(block, np.float16) for name, block in edges.items()}
        kept = {
            name: np.where(np.asarray(edges[name]) < 0.5, np.minimum(half, below), half)
            for name, half in halves.items()
        }
        write_arrays(place(self.edges, step), kept)

    def read_edges(self) -> tuple[NDArray[np.int64], Arrays]:
        """Steps [K] of all snapshots, and each block of edges over them [K, L, ...]."""
        steps = self.edge_steps()
        found = [self.read_edges_at(step) for step in steps]
        names = [name for name in sorted(found[-1]) if all(name in each for each in found)] if found else []
        return np.asarray(steps, np.int64), {name: np.stack([each[name] for each in found]) for name in names}

    def read_last_edges(self) -> Arrays:
        """Each block of edges [L, ...] in the newest snapshot; none before the first evaluation."""
        steps = self.edge_steps()
        return self.read_edges_at(steps[-1]) if steps else {}

    def read_edges_at(self, step: int) -> Arrays:
        """Each block of edges [L, ...] in the snapshot of one step."""
        blocks = snapshots.read(self.edges, step, self.sizes())
        return {name: block.astype(np.float32) for name, block in blocks.items()}

    def edge_steps(self) -> list[int]:
        """Steps whose edges can be read, oldest first."""
        return snapshots.steps(self.edges, self.sizes())

    def write_episodes(self, step: int, lanes: Sequence[Sequence[Episode]]) -> None:
        """Stores a few evaluation episodes of each lane."""
        write_arrays(place(self.episodes, step), snapshots.from_lanes(lanes))

    def read_episodes(self, step: int) -> list[list[Episode]]:
        """The episodes stored at one step, by lane."""
        if not place(self.episodes, step).is_file():
            raise UserError(f"no episodes at step {step} in {self.path}: choose from {self.episode_steps()}")
        return snapshots.by_lane(snapshots.read(self.episodes, step, self.sizes()))

    def episode_steps(self) -> list[int]:
        """Steps whose evaluation episodes can be read, oldest first."""
        return snapshots.steps(self.episodes, self.sizes())

    def truncate_after(self, step: int) -> None:
        """Drops edges and episodes of later steps, and what a crash left half written, before a resume."""
        files.clear(self.path)
        for folder in (self.edges, self.episodes, self.checkpoints):
            drop_after(folder, step)

    def lock(self) -> AbstractContextManager[None]:
        """Holds the run for writing."""
        return held(self.path, f"run {self.path}")


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """What is wrong inside is wrong with this file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path} is damaged ({error}): correct it, or restore it from a copy") from error


# --- What is to be said before one relies on it


def notes(run: RunFolder) -> list[str]:
    """A line for all that is damaged or gone, but for arrays of checkpoints: their readers say so."""
    sizes, said, found = run.sizes(), list[str](), run.examine_metrics()
    try:
        read_json(run.config)
    except UserError:  # what cannot be read at all has been refused before
        said += [f"{run.config} was changed after it was written: the run was trained with other settings"]
    said += run._optional(run.status, StatusFile)[1] + run._optional(run.versions, VersionsFile)[1]
    said += [*found.notes, *snapshots.damaged(run.edges, sizes), *snapshots.damaged(run.episodes, sizes)]
    named = ((name, entry["step"]) for entry in found.entries for name in entry.get(logs.STORED, ()))
    stored = [place(run.path / name, step) for name, step in named]
    if any("unexplained" in entry for entry in found.entries):  # it was fitted to a log
        stored += [run.data, *([run.credit] if run.read_status().get("state") == "finished" else [])]
    said += [f"{path} is missing" for path in stored if not path.exists()]
    saved = checkpoint.steps(run.checkpoints)
    return [*said, *checkpoint.newest_meta(run.checkpoints)[1], *(on_age(run, saved[-1]) if saved else ())]


def on_age(run: RunFolder, step: int) -> list[str]:
    """On a newest checkpoint of this step: a run that was saved when it ended has one of that step."""
    status = run.read_status()
    if status.get("state") not in ("finished", "stopped") or status["step"] <= step:
        return []
    return [f"the newest checkpoint is of step {step}, but the run had come to step {status['step']}"]


# --- Names, and what wrote it


def default_path(env_id: str, method: str, root: Path = Path("runs")) -> Path:
    """A new name such as runs/greenhouse-v0-grd-20261115-142233."""
    name = readable_name(env_id.removeprefix("apportion/"), method, f"{datetime.now():%Y%m%d-%H%M%S}")
    path, number = root / name, 1
    while path.exists():
        number += 1
        path = root / f"{name}-{number}"
    return path


def readable_name(*words: str) -> str:
    """A folder's name from what it is about: no spaces, slashes or capitals."""
    return re.sub(r"[^a-z0-9._-]+", "-", "-".join(words).lower()).strip(".-")


def versions() -> dict[str, Any]:
    """What this process runs on: packages, Python, machine, devices, and the commit of the work around it,
    or, outside any repository, of the package itself."""
    here = Path.cwd()
    source = here if _git(here, "rev-parse", "HEAD") else Path(__file__).parent
    commit = _git(source, "rev-parse", "HEAD")
    changes = None if commit is None else _git(source, "status", "--porcelain")
    return {
        "apportion": __version__,
        **{package: _version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "devices": [device.device_kind for device in jax.devices()],
        "commit": commit,
        "dirty": None if changes is None else changes != "",
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says about a folder; None where there is no git or no repository."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
