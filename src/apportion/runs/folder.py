"""The run folder: one place for all that a training leaves behind, and the only thing that reports read."""

import errno
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from apportion import __version__
from apportion.core.errors import UserError
from apportion.core.spec import Spec
from apportion.runs.atomic import Arrays, write_json, write_tensors

Episode = dict[str, NDArray[Any]]  # observations [T+1, S], actions [T, A], true_rewards [T], ...

PACKAGES = ("jax", "jaxlib", "optax", "equinox", "gymnasium", "mujoco", "numpy")
_SNAPSHOT = re.compile(r"step_(\d{12})\.safetensors")
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and how its small files are written and read."""

    path: Path
    env: str | None = None  # the id of its environment here, where that was given again

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], spec: Spec) -> "RunFolder":
        """Starts a run folder; it must not hold anything yet."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            saved = any((path / "checkpoints").glob("step_*"))
            fix = f"continue it with `apportion resume {path}`" if saved else "delete it"
            raise UserError(f"run folder {path} exists: choose another --out, or {fix}")
        run = cls(path)
        for folder in (run.edges, run.episodes, run.checkpoints, run.best, run.tensorboard):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(run.spec, spec.to_dict())
        write_json(run.versions, versions())
        write_json(run.config, config)  # last: a folder with a config is a whole one
        return run

    @classmethod
    def open(cls, path: Path, env: str | None = None) -> "RunFolder":
        """An existing run folder."""
        run = cls(path, env)
        for file in (run.config, run.spec):
            if not file.is_file():
                raise UserError(
                    f"{path} is not a run folder (it has no {file.name}): "
                    "name a folder that `apportion train` wrote"
                )
        return run

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
        return read_json(self.config)

    def read_spec(self) -> Spec:
        return Spec.from_dict(read_json(self.spec))

    def write_edges(self, step: int, edges: Mapping[str, NDArray[Any]]) -> None:
        """Stores edge probabilities [L, ...] at one step; half precision is plenty for a page."""
        halves = {name: _half(block) for name, block in edges.items()}
        write_tensors(_snapshot(self.edges, step), halves)

    def read_edges(self) -> tuple[NDArray[np.int64], Arrays]:
        """Steps [K] of all snapshots, and each block of edges over them [K, L, ...]."""
        steps = _snapshot_steps(self.edges)
        snapshots = [load_file(_snapshot(self.edges, step)) for step in steps]
        names = sorted(snapshots[0]) if snapshots else []
        stacked = {name: np.stack([each[name] for each in snapshots]).astype(np.float32) for name in names}
        return np.asarray(steps, np.int64), stacked

    def read_last_edges(self) -> Arrays:
        """Each block of edges [L, ...] in the newest snapshot; none before the first evaluation."""
        steps = self.edge_steps()
        return self.read_edges_at(steps[-1]) if steps else {}

    def read_edges_at(self, step: int) -> Arrays:
        """Each block of edges [L, ...] in the snapshot of one step."""
        return {
            name: block.astype(np.float32) for name, block in load_file(_snapshot(self.edges, step)).items()
        }

    def edge_steps(self) -> list[int]:
        """Steps whose edges are stored, oldest first."""
        return _snapshot_steps(self.edges)

    def write_episodes(self, step: int, lanes: Sequence[Sequence[Episode]]) -> None:
        """Stores a few evaluation episodes of each lane."""
        arrays: Arrays = {"episodes_per_lane": np.array([len(episodes) for episodes in lanes], np.int32)}
        for lane, episodes in enumerate(lanes):
            for number, episode in enumerate(episodes):
                arrays |= {f"lane{lane}.episode{number}.{name}": array for name, array in episode.items()}
        write_tensors(_snapshot(self.episodes, step), arrays)

    def read_episodes(self, step: int) -> list[list[Episode]]:
        """The episodes stored at one step, by lane."""
        file = _snapshot(self.episodes, step)
        if not file.is_file():
            raise UserError(f"no episodes at step {step} in {self.path}: choose from {self.episode_steps()}")
        arrays = load_file(file)
        lanes: list[list[Episode]] = [[{} for _ in range(count)] for count in arrays.pop("episodes_per_lane")]
        for key in sorted(arrays):
            lane, number, name = key.split(".", 2)
            episode = lanes[int(lane.removeprefix("lane"))][int(number.removeprefix("episode"))]
            episode[name] = arrays[key]
        return lanes

    def episode_steps(self) -> list[int]:
        """Steps whose evaluation episodes are stored, oldest first."""
        return _snapshot_steps(self.episodes)

    def truncate_after(self, step: int) -> None:
        """Drops edges and episodes of later steps, and what a crash left half written, before a resume."""
        for folder in (self.edges, self.episodes):
            for later in [each for each in _snapshot_steps(folder) if each > step]:
                _snapshot(folder, later).unlink()
            for torn in folder.glob(".*"):
                torn.unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for writing. The kernel lets go of the lock if the process dies in any way.

        A forked child keeps the lock of its parent alive; spawned ones do not.
        """
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _claim(descriptor, self.path)
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the run."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): restore it from a copy, or start a new run") from error
    if not isinstance(data, dict):
        raise UserError(f"{path} is damaged (not a JSON object): restore it from a copy, or start a new run")
    return data


def default_path(env_id: str, method: str, root: Path = Path("runs")) -> Path:
    """A new name such as runs/greenhouse-v0-grd-20261115-142233."""
    words = f"{env_id.removeprefix('apportion/')}-{method}-{datetime.now():%Y%m%d-%H%M%S}"
    name = re.sub(r"[^a-z0-9._-]+", "-", words.lower()).strip(".-")
    path, number = root / name, 1
    while path.exists():
        number += 1
        path = root / f"{name}-{number}"
    return path


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


def _claim(descriptor: int, run: Path) -> None:
    """Takes the lock and leaves our process number in it for others to name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 32).decode().strip() or "unknown"
        raise UserError(f"run {run} is being written by process {owner}: wait for it, or stop it") from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:  # some network disks have none; better unlocked than unusable
            raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _half(probabilities: NDArray[Any]) -> NDArray[np.float16]:
    """In half precision, without lifting an edge that is off (P < 0.5) to the threshold by rounding."""
    halves = np.asarray(probabilities, np.float16)
    below = np.nextafter(np.float16(0.5), np.float16(0))
    return np.where(np.asarray(probabilities) < 0.5, np.minimum(halves, below), halves)


def _snapshot(folder: Path, step: int) -> Path:
    return folder / f"step_{step:012d}.safetensors"


def _snapshot_steps(folder: Path) -> list[int]:
    matches = [_SNAPSHOT.fullmatch(path.name) for path in folder.glob("step_*")]
    return sorted(int(match[1]) for match in matches if match)
