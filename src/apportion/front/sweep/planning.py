"""From a sweep file to its jobs.

    [sweep]
    tasks = ["HalfCheetah-v4", "Ant-v4"]
    methods = ["grd", "rd"]
    seeds = 5
    steps = 300_000

    [set]                             # flags of `apportion train`, for every job
    "env.delay" = "20"

    [vary]                            # a job for each combination of these
    "method.hidden" = [[64, 64], [256, 256]]

A setting of a method or backbone goes to those that have it; one that nobody has is refused.
"""

import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from apportion.core.config import UserError, check, from_dict, nearest, one_line
from apportion.core.files import read_bytes
from apportion.core.spec import Spec
from apportion.envs.factories import only_here
from apportion.envs.faults import FAILURES, blame
from apportion.envs.make import EnvConfig, make
from apportion.front.choosing import Job, flat, known_settings
from apportion.methods import METHODS
from apportion.runs.folder import readable_name
from apportion.training.presets import default_backbone

# --- Jobs


MOST_JOBS = 1_000  # of one task with one method: more are a mistake, and take long to list
LOGS = "logs"  # beside the run folders, so that no job may have that name


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
            where = " (a flag is a key of [set] in a sweep file)" if "--" in str(error) else ""
            if re.search(r"--backbone\b(?!\.)", str(error)):
                where = " (in a sweep file it stands in backbones of [sweep])"
            raise UserError(f"job {job.name}: {error}{where}") from error


def _check_training(job: Job, specs: dict[EnvConfig, Spec]) -> None:
    """Environments of the same settings are made once, and only to look at them."""
    config = job.chosen().config
    check(not only_here(config.env.id), "its environment is known to this process only: put it in a module")
    if config.env not in specs:
        try:
            env, specs[config.env] = make(config.env)
        except FAILURES as error:
            raise UserError(blame(error, set())) from error
        env.close()
    config.check_actions(specs[config.env])


Settings = dict[str, Any]  # by the names of flags


# --- Sweep files


@dataclass(frozen=True)
class Sweep:
    """The table [sweep]: every task with every method and every backbone."""

    tasks: tuple[str, ...]
    methods: tuple[str, ...] = ("grd",)
    backbones: tuple[str, ...] = ()
    """By default what suits each task."""
    seeds: int = 1
    """Lanes of each job."""
    seed: int = 0
    """The first of them."""
    steps: int | None = None
    """By default what suits each task."""
    preset: Literal["default", "paper"] = "default"

    def __post_init__(self) -> None:
        check(len(self.tasks) > 0, "sweep.tasks is empty: name at least one environment")
        check(len(self.methods) > 0, "sweep.methods is empty: name at least one, or leave it out")
        for name in ("tasks", "methods", "backbones"):
            values = getattr(self, name)
            twice = [value for value in values if values.count(value) > 1]
            check(not twice, f"sweep.{name} has {twice[0] if twice else ''} twice")


def read_plan(file: Path) -> list[Job]:
    """The jobs of a TOML file."""
    try:
        # Some editors begin it with a mark.
        data = tomllib.loads(read_bytes(file, linked=True).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # also of numbers and tables without end
        raise UserError(f"{file} is not TOML: {one_line(error)}") from error
    try:
        return plan(data)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def plan(data: Mapping[str, Any]) -> list[Job]:
    """The jobs of what a sweep file holds, in its order."""
    tables = ("sweep", "set", "vary")
    for name, table in data.items():
        check(name in tables, f"unknown table [{name}]{nearest(name, tables)}")
        check(isinstance(table, Mapping), f"{name} must be a table: [{name}]")
    check("sweep" in data, "there is no table [sweep]: it says which tasks, methods and seeds")
    # 1e6 steps are a whole number, as on the command line.
    whole = {k: int(x) for k, x in data["sweep"].items() if isinstance(x, float) and x.is_integer()}
    sweep = from_dict(Sweep, {**data["sweep"], **whole}, "sweep.")
    fixed, varied = flat(data.get("set", {})), flat(data.get("vary", {}))
    known = {
        (task, method, backbone): known_settings(task, method, backbone)
        for task, method in itertools.product(sweep.tasks, sweep.methods)
        for backbone in sweep.backbones or (default_backbone(task, sweep.preset),)
    }
    _check_settings(fixed, varied, sweep, sorted(set().union(*known.values())))
    found: dict[str, Job] = {}
    for (task, method, backbone), names in known.items():
        settings = {name: value for name, value in fixed.items() if name in names}
        axes = {name: values for name, values in varied.items() if name in names}
        for numbers in itertools.product(*(range(len(values)) for values in axes.values())):
            chosen = {name: values[k] for k, (name, values) in zip(numbers, axes.items(), strict=True)}
            words = [task.removeprefix("apportion/"), method, backbone]
            for k, (name, value) in zip(numbers, chosen.items(), strict=True):
                words += [name.rpartition(".")[2], _in_a_name(value, k + 1)]
            # Names that differ only in what a folder's name cannot hold are told apart by a number.
            ends = ("", *(f"-{number}" for number in range(2, len(found) + 2)))
            job = next(job for end in ends if (job := readable_name(*words) + end) not in found)
            about = (sweep.seeds, sweep.seed, sweep.steps, sweep.preset, settings | chosen)
            found[job] = Job(job, task, method, backbone, *about)
    return list(found.values())


def default_folder(file: str | os.PathLike[str]) -> Path:
    """Where the runs of a sweep file go: the same place each time, so that a sweep goes on there."""
    return Path("runs") / (readable_name(Path(file).stem) or "sweep")


def _check_settings(fixed: Settings, varied: Settings, sweep: Sweep, known: list[str]) -> None:
    for table, names in (("set", fixed), ("vary", varied)):
        for name in names:
            check(name in known, f"unknown setting {name!r} in [{table}]{_instead(name, known, sweep)}")
    for name, values in varied.items():
        check(isinstance(values, list | tuple), f"vary.{name} must be a list of values, one for each job")
        check(len(values) > 0, f"vary.{name} is empty: give it values, or leave it out")
        check(len(values) <= MOST_JOBS, f"vary.{name} has more than {MOST_JOBS:,} values: name fewer")
        check(all(values.count(value) == 1 for value in values), f"vary.{name} has a value twice")
        check(name not in fixed, f"{name} stands in [set] and in [vary]: leave one out")
    count = math.prod(map(len, varied.values()))
    check(count <= MOST_JOBS, f"[vary] makes {count:,} jobs of each task: name fewer values")
    given_twice = sweep.steps is not None and "steps" in {*fixed, *varied}
    check(not given_twice, "steps stands in [sweep] and below: leave one out")


def _instead(name: str, known: list[str], sweep: Sweep) -> str:
    """What may have been meant by a setting that no job has."""
    if name in vars(sweep):
        return ": it belongs in [sweep]"
    if f"{name}s" in vars(sweep):
        return f": it belongs in {name}s of [sweep]"
    task = sweep.tasks[0]
    backbones = sweep.backbones or (default_backbone(task, sweep.preset),)
    elsewhere = [method for method in METHODS if name in known_settings(task, method, backbones[0])]
    if elsewhere:
        return f": {', '.join(elsewhere)} have it, but not {', '.join(sweep.methods)}"
    return nearest(name, known)


def _in_a_name(value: Any, number: int, longest: int = 24) -> str:
    """A value in a few characters, or its number in the list."""
    parts = value if isinstance(value, list | tuple) else [value]
    text = "-".join(str(part) for part in parts)
    return text if text and len(text) <= longest and not isinstance(value, Mapping) else str(number)


# --- Commands that train them


def train_words(job: Job, run: Path) -> list[str]:
    """The words after `apportion`, for a run folder that is not there yet."""
    config = job.chosen().config
    words = ["train", job.env, "--out", str(run), "--method", job.method, "--backbone", config.backbone]
    words += ["--seeds", str(job.seeds), "--seed", str(job.seed)]
    words += [] if job.preset == "default" else ["--preset", job.preset]
    words += [] if job.steps is None else ["--steps", str(job.steps)]
    for name, value in flat(job.settings).items():
        words += _flag(name.replace("_", "-"), value)
    return words


def _flag(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        group, dot, last = name.rpartition(".")
        yield f"--{name}" if value else f"--{group}{dot}no-{last}"
    elif isinstance(value, list | tuple):
        yield from (f"--{name}", *map(_word, value))
    elif _word(value).startswith("-"):  # else it would be taken for a flag
        yield f"--{name}={_word(value)}"
    else:
        yield from (f"--{name}", _word(value))


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
