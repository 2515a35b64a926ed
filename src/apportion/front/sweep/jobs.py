"""A job of a sweep: one training with all its seeds, and the name of its run folder."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.core.config import check
from apportion.core.errors import UserError
from apportion.core.spec import Spec
from apportion.envs.factories import only_here
from apportion.envs.make import EnvConfig, make
from apportion.front.choosing import Chosen, choose
from apportion.runs.atomic import plain

LOGS = "logs"  # beside the run folders, so that no job may have that name


@dataclass(frozen=True)
class Job:
    """What `apportion train` would be told. Seeds are lanes of one process."""

    name: str  # of the run folder, within the sweep's
    env: str
    method: str = "grd"
    backbone: str | None = None  # by default what suits the task
    seeds: int = 1
    seed: int = 0
    steps: int | None = None  # by default what suits the task
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)  # other flags, by name

    def chosen(self) -> Chosen:
        """Every setting of the training; UserError where they do not hold up."""
        steps = {} if self.steps is None else {"steps": self.steps}
        given = {**self.settings, **steps}
        return choose(self.env, self.method, self.backbone, self.seeds, self.seed, self.preset, given)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: two jobs with the same are the same."""
        data: dict[str, Any] = plain(vars(self))
        return data


def check_jobs(jobs: Sequence[Job]) -> None:
    """Complain of whatever would keep a job from starting, before any does: names, settings, environments."""
    check(len(jobs) > 0, "there is no job to do")
    names: set[str] = set()
    specs: dict[EnvConfig, Spec] = {}
    for job in jobs:
        fit = re.fullmatch(r"\w[\w.-]*", job.name) is not None and job.name != LOGS
        check(fit, f"{job.name!r} is no name for a job: use letters, digits, dots and hyphens")
        check(job.name not in names, f"two jobs are named {job.name!r}")
        names.add(job.name)
        try:
            _check_training(job, specs)
        except UserError as error:
            raise UserError(f"job {job.name}: {error}{_in_a_file(str(error))}") from error


def _in_a_file(reason: str) -> str:
    """Where a sweep file has the flag that a reason names, if it names one."""
    if re.search(r"--backbone\b(?!\.)", reason):
        return " (in a sweep file it stands in backbones of [sweep])"
    return " (a flag is a key of [set] in a sweep file)" if "--" in reason else ""


def _check_training(job: Job, specs: dict[EnvConfig, Spec]) -> None:
    """Environments of the same settings are made once, and only to look at them."""
    config = job.chosen().config
    check(not only_here(config.env.id), "its environment is known to this process only: put it in a module")
    if config.env not in specs:
        env, specs[config.env] = make(config.env)
        env.close()
    config.check_actions(specs[config.env])
