"""How a job stands, as its run folder says: also while another process, or another machine, works on it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from apportion.front.sweep.jobs import Job
from apportion.runs import checkpoint, logs
from apportion.runs.folder import RunFolder
from apportion.runs.notes import read_status
from apportion.runs.progress import over_lanes

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
    status = read_status(RunFolder(run))[0]
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
    return bool(read_status(RunFolder(run))[0].get("state") == "frozen")


def newest_checkpoint(run: Path) -> int | None:
    """Its step; None where there is none."""
    return max(checkpoint.steps(RunFolder(run).checkpoints), default=None)
