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
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.core import files
from apportion.core.config import UserError, check, conform, from_dict
from apportion.core.spec import Spec
from apportion.runs import logs, snapshots
from apportion.runs.atomic import Arrays, read_json, write_json
from apportion.runs.schemas import SpecFile, blamed_on, check_spec
from apportion.runs.snapshots import Episode as Episode
from apportion.runs.snapshots import Sizes
from apportion.training.settings import MOST_LANES

# --- One writer at a time


LOCK = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Holds a folder for writing; `what` names it to others. The kernel lets go of the lock if the process
    dies in any way.

    A forked child keeps the lock of its parent alive; spawned ones do not.
    """
    descriptor = files.own(folder / LOCK, os.O_RDWR)
    try:
        _claim(descriptor, what)
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


def _claim(descriptor: int, what: str) -> None:
    """Takes the lock and leaves our process number in it for others to name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 32).decode().strip() or "unknown"
        raise UserError(f"{what} is being written by process {owner}: wait for it, or stop it") from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:  # some network disks have none; better unlocked than unusable
            raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


PACKAGES = ("jax", "jaxlib", "optax", "equinox", "gymnasium", "mujoco", "numpy")
# What a run of any version says of itself in config.json.
_NEEDED = {"env.id": str, "method.name": str, "backbone.name": str, "schedule.steps": int, "seed": int}
_NEEDED |= {"lanes": int}


@dataclass(frozen=True)
# --- The folder


class RunFolder:
    """Paths of one run, and how its small files are written and read."""

    path: Path
    env: str | None = None  # the id of its environment here, where that was given again
    trusted: bool = True  # whether code that it names may be imported: its environment, a user's own method

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
        return self.edges, self.episodes, self.checkpoints, self.best, self.tensorboard

    @property
    def names(self) -> set[str]:
        """Of all that a run writes into its folder."""
        files = (self.config, self.versions, self.spec, self.metrics, self.status, self.data, self.credit)
        return {path.name for path in (*self.folders, *files, self.credit_arrays)} | {LOCK}

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def data(self) -> Path:
        """What a run was fitted to, and how that became numbers; trainings have none."""
        return self.path / "data.json"

    @property
    def credit(self) -> Path:
        """How far outcomes determine the credit of single steps, where the run was fitted to a log."""
        return self.path / "credit.json"

    @property
    def credit_arrays(self) -> Path:
        return self.path / "credit.safetensors"

    @property
    def worth(self) -> Path:
        """What policies are worth by the log that they were learned from."""
        return self.path / "offline_evaluation.json"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def edges(self) -> Path:
        return self.path / "edges"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.path / "best"

    def read_config(self) -> dict[str, Any]:
        """Every setting, as config.json has it."""
        data = read_json(self.config, edited=True)
        with blamed_on(self.config):
            for name, hint in _NEEDED.items():
                section, _, key = name.rpartition(".")
                within = conform(dict[str, Any], data.get(section), section) if section else data
                conform(hint, within.get(key), name)
            check(1 <= data["lanes"] <= MOST_LANES, f"lanes={data['lanes']} must be from 1 to {MOST_LANES:,}")
        return data

    def read_spec(self) -> Spec:
        """What is known about the environment."""
        data = read_json(self.spec)
        with blamed_on(self.spec):
            known = from_dict(SpecFile, data)
            check_spec(known)
            return Spec.from_dict(dict(known))

    def read_metrics(self) -> list[dict[str, Any]]:
        """All entries of metrics.jsonl by step; damaged lines are left out, and named in `notes`."""
        return logs.examine(self.metrics, self.sizes().lanes).entries

    def evaluations(self) -> list[dict[str, Any]]:
        """Those of them that are of evaluations."""
        return [entry for entry in self.read_metrics() if entry["kind"] == "eval"]

    def sizes(self) -> Sizes:
        """What the arrays of this run must fit."""
        spec = self.read_spec()
        return Sizes(self.read_config()["lanes"], spec.observation_size, spec.action_size)

    def write_edges(self, step: int, edges: Mapping[str, NDArray[Any]]) -> None:
        """Stores edge probabilities [L, ...] at one step; half precision is plenty for a page."""
        snapshots.write(self.edges, step, {name: _half(block) for name, block in edges.items()})

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
        blocks = snapshots.read(self.edges, step, snapshots.check_edges, self.sizes())
        return {name: block.astype(np.float32) for name, block in blocks.items()}

    def edge_steps(self) -> list[int]:
        """Steps whose edges can be read, oldest first."""
        return snapshots.steps(self.edges, snapshots.check_edges, self.sizes())

    def write_episodes(self, step: int, lanes: Sequence[Sequence[Episode]]) -> None:
        """Stores a few evaluation episodes of each lane."""
        snapshots.write(self.episodes, step, snapshots.from_lanes(lanes))

    def read_episodes(self, step: int) -> list[list[Episode]]:
        """The episodes stored at one step, by lane."""
        if not snapshots.place(self.episodes, step).is_file():
            raise UserError(f"no episodes at step {step} in {self.path}: choose from {self.episode_steps()}")
        return snapshots.by_lane(snapshots.read(self.episodes, step, snapshots.check_episodes, self.sizes()))

    def episode_steps(self) -> list[int]:
        """Steps whose evaluation episodes can be read, oldest first."""
        return snapshots.steps(self.episodes, snapshots.check_episodes, self.sizes())

    def truncate_after(self, step: int) -> None:
        """Drops edges and episodes of later steps, and what a crash left half written, before a resume."""
        files.clear(self.path)
        for folder in (self.edges, self.episodes):
            for later in [each for each in snapshots.stored(folder) if each > step]:
                snapshots.place(folder, later).unlink()
            files.clear(folder)

    def lock(self) -> AbstractContextManager[None]:
        """Holds the run for writing."""
        return held(self.path, f"run {self.path}")


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


def _half(probabilities: NDArray[Any]) -> NDArray[np.float16]:
    """In half precision, without lifting an edge that is off (P < 0.5) to the threshold by rounding."""
    halves = np.asarray(probabilities, np.float16)
    below = np.nextafter(np.float16(0.5), np.float16(0))
    return np.where(np.asarray(probabilities) < 0.5, np.minimum(halves, below), halves)
