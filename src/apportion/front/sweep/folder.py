"""The sweep folder: run folders, logs, and a manifest that ties them to one list of jobs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from apportion.core.config import check
from apportion.front.choosing import Job
from apportion.front.sweep.planning import LOGS
from apportion.runs import checkpoint, logs
from apportion.runs.atomic import read_json, write_json
from apportion.runs.folder import RunFolder, held
from apportion.runs.progress import over_lanes


@dataclass(frozen=True)
class SweepFolder:
    """Paths of one sweep. It is absolute, for those who work elsewhere on it."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / "sweep.json"

    @property
    def stop(self) -> Path:
        """There while jobs on other machines are to save and end."""
        return self.path / ".stop"

    def run(self, job: Job) -> Path:
        return self.path / job.name

    def log(self, job: Job) -> Path:
        """What a job printed."""
        return self.path / LOGS / f"{job.name}.log"

    def lock(self) -> AbstractContextManager[None]:
        """Holds the sweep, so that nobody else starts the same jobs."""
        return held(self.path, f"sweep {self.path}")

    @classmethod
    def open(cls, path: Path, jobs: Sequence[Job]) -> "SweepFolder":
        """A new folder for these jobs, or the one that they have already."""
        folder = cls(path.absolute())
        folder.check_belongs(jobs)
        (folder.path / LOGS).mkdir(parents=True, exist_ok=True)
        if not folder.manifest.exists():
            write_json(folder.manifest, {"jobs": [job.to_dict() for job in jobs]})
        return folder

    def check_belongs(self, jobs: Sequence[Job]) -> None:
        """Complain of a folder of other jobs, or of something else."""
        if not self.path.exists():
            return
        check(self.path.is_dir(), f"{self.path} is no folder: choose another --out")
        if not self.manifest.exists():
            others = [path.name for path in self.path.iterdir() if path.name not in (LOGS, ".lock")]
            check(not others, f"{self.path} holds no sweep, but other files: choose another --out")
            return
        differing = _difference(read_json(self.manifest).get("jobs"), [job.to_dict() for job in jobs])
        fix = "choose another --out, or ask for the same as when it was made"
        check(differing is None, f"{self.path} is the folder of another sweep ({differing}): {fix}")


def _difference(before: object, now: list[dict[str, object]]) -> str | None:
    """What is other about these jobs, in a few words."""
    if before == now:
        return None
    listed = before if isinstance(before, list) else []
    was = {job.get("name"): job for job in listed if isinstance(job, dict)}
    wanted = {job["name"]: job for job in now}
    for name in [*wanted, *was]:
        if name not in was:
            return f"it has no job {name}"
        if name not in wanted:
            return f"it also has a job {name}"
        changed = [key for key in wanted[name] if wanted[name][key] != was[name].get(key)]
        if changed:
            return f"{name} had {changed[0]} = {was[name].get(changed[0])}"
    return "its jobs have another order"


# --- How a job stands


State = Literal["waiting", "running", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Standing:
    """A job, and how far it is."""

    job: Job
    run: Path
    state: State
    step: int
    steps: int  # at its end
    score: str = ""  # returns of its seeds at the last evaluation
    reason: str | None = None  # why it failed

    def to_dict(self) -> dict[str, Any]:
        facts = {"status": self.state, "step": self.step, "steps": self.steps, "reason": self.reason}
        return {**self.job.to_dict(), "run": str(self.run), **facts}


def look(job: Job, run: Path) -> Standing:
    """At a job that nobody works on: finished, stopped where there is a checkpoint, or still to begin.

    A finished one stays so when somebody deletes its checkpoints to make room."""
    schedule = job.chosen().config.schedule
    total = schedule.iterations * schedule.steps_per_iteration
    start = Standing(job, run, "waiting", 0, total)
    status = RunFolder(run).read_status()
    if status.get("state") == "finished" and status["step"] >= total:
        return advanced(replace(start, state="finished"))
    return advanced(replace(start, state="stopped")) if has_checkpoint(run) else start


def advanced(standing: Standing) -> Standing:
    """With the newest step and score that the run has logged."""
    step, score = standing.step, standing.score
    for line in logs.newest(RunFolder(standing.run).metrics):
        step = max(step, line["step"])
        if line["kind"] == "eval":
            score = over_lanes(line["return"], len(line["return"]))
    return replace(standing, step=step, score=score)


def has_checkpoint(run: Path) -> bool:
    """Whether there is one to go on from; one that is damaged counts: whoever reads it says so."""
    meta, unreadable = checkpoint.newest_meta(RunFolder(run).checkpoints)
    return meta is not None or len(unreadable) > 0


def is_frozen(run: Path) -> bool:
    """Whether no seed of it is left to train, so that it cannot go on."""
    return bool(RunFolder(run).read_status().get("state") == "frozen")


def newest_checkpoint(run: Path) -> int | None:
    """Its step; None where there is none."""
    return max(checkpoint.steps(RunFolder(run).checkpoints), default=None)
