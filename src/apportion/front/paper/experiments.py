"""What the paper ran, as experiments.toml has it, and the jobs of a sweep that runs it."""

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from apportion.core.config import check, from_dict, nearest
from apportion.front.choosing import Job, known_settings
from apportion.runs.folder import readable_name
from apportion.training.presets import default_backbone

Scale = Literal["smoke", "half", "full"]
Settings = Literal["published", "ours"]
Choice = Literal["published", "ours", "both"]
PRESETS: dict[Settings, Literal["paper", "default"]] = {"published": "paper", "ours": "default"}


# --- What the paper ran


@dataclass(frozen=True)
class Variant:
    """What was trained, under the name that the paper gives it."""

    name: str
    method: str
    set: dict[str, Any] = field(default_factory=dict)  # flags of `apportion train`
    published: bool = False  # its settings are those of the published form only


@dataclass(frozen=True)
class Printed:
    """A row that the paper prints, a cell for each column of the table."""

    task: str
    row: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper; experiments.toml says what the fields are."""

    name: str
    title: str
    source: str
    caption: str
    shows: Literal["curves", "noise", "edges", "rewards"]
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    steps: int
    smoke: tuple[int, int]
    differs: tuple[str, ...]
    differs_ours: tuple[str, ...]
    moments: tuple[int, ...] = ()  # steps that the paper's columns are at; by default the last one
    backbones: tuple[str, ...] = ()
    metric: Literal["return", "success"] = "return"
    sparsity: bool = False
    noise: tuple[float, ...] = ()
    noise_dims: tuple[int, int] = (0, 0)
    episodes: int = 0
    printed: tuple[Printed, ...] = ()


_DATA = tomllib.loads(resources.files(__package__).joinpath("experiments.toml").read_text(encoding="utf-8"))
NOTES: dict[str, str] = _DATA["notes"]


def _experiment(name: str, data: dict[str, Any]) -> Experiment:
    usual = {"name": name, "moments": [data["steps"]], "caption": _DATA["captions"][data["shows"]]}
    said = {key: [NOTES.get(line, line) for line in data[key]] for key in ("differs", "differs_ours")}
    return from_dict(Experiment, {**usual, **data, **said})


EXPERIMENTS = {name: _experiment(name, data) for name, data in _DATA["experiments"].items()}


def find(name: str) -> Experiment:
    check(name in EXPERIMENTS, f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


# --- What is run of it


class Request(NamedTuple):
    """How much of an experiment is asked for, and with which settings."""

    scale: Scale = "smoke"
    choice: Choice = "published"
    steps: int | None = None  # by default the scale's
    seeds: int | None = None

    def of(self, experiment: Experiment) -> tuple[Experiment, int]:
        """What is left of the experiment, and the seeds of each training. Steps are those of whole
        iterations, which is what trainings make."""
        smoke, every = self.scale == "smoke", int(_DATA["smoke"]["steps_per_iteration"])
        usual = int(_DATA["smoke_steps"]) if smoke else experiment.steps // (2 if self.scale == "half" else 1)
        tasks, variants = experiment.smoke if smoke else (None, None)
        kept = replace(
            experiment,
            tasks=experiment.tasks[:tasks],
            variants=experiment.variants[:variants],
            steps=-(-(self.steps or usual) // every) * every,
        )
        return kept, self.seeds or int(_DATA["smoke_seeds" if smoke else "seeds"])

    @property
    def settings(self) -> tuple[Settings, ...]:
        return ("published", "ours") if self.choice == "both" else (self.choice,)

    def words(self, name: str) -> str:
        """The command line."""
        more = [
            f"--{what} {count}" for what, count in (("steps", self.steps), ("seeds", self.seeds)) if count
        ]
        return " ".join([f"apportion paper {name} --scale {self.scale} --settings {self.choice}", *more])

    def folder(self, name: str) -> Path:
        """The same place each time, so that an experiment goes on there; another for what is not usual."""
        words = ["paper", name, self.scale, *([self.choice] if self.choice != "published" else [])]
        counts = ((self.steps, "steps"), (self.seeds, "seeds"))
        return Path("runs") / "-".join([*words, *(f"{count}-{what}" for count, what in counts if count)])


class Planned(NamedTuple):
    """A job of the sweep, and what it is in the experiment."""

    job: Job
    variant: Variant
    settings: Settings
    panel: str  # where its curve is drawn: a task, or a task and a backbone where there are several

    @property
    def label(self) -> str:
        return f"{self.variant.name} ({self.settings})"


def plan(experiment: Experiment, request: Request) -> list[Planned]:
    """A job for each kind of settings, task, variant and backbone; seeds are its lanes."""
    kept, seeds = request.of(experiment)
    tiny = _DATA["smoke"] if request.scale == "smoke" else {}
    planned = []
    for settings, task in itertools.product(request.settings, kept.tasks):
        preset = PRESETS[settings]
        backbones = kept.backbones or (default_backbone(task, preset),)
        for variant, backbone in itertools.product(_variants(kept, settings), backbones):
            several = [backbone] if kept.backbones else []
            words = [settings, task.rpartition("/")[2], variant.name.replace("λ", "lambda"), *several]
            known = known_settings(task, variant.method, backbone)
            own = {name: value for name, value in tiny.items() if name in known} | variant.set
            about = (variant.method, backbone, seeds, 0, kept.steps, preset, own)
            panel = ", ".join([task, *map(str.upper, several)])
            planned.append(Planned(Job(readable_name(*words), task, *about), variant, settings, panel))
    return planned


def _variants(experiment: Experiment, settings: Settings) -> list[Variant]:
    """With our settings, variants of what only the published form has are one: the method as it is."""
    if settings == "published":
        return list(experiment.variants)
    kept = [variant for variant in experiment.variants if not variant.published]
    methods = dict.fromkeys(variant.method for variant in experiment.variants if variant.published)
    return kept + [Variant(method.upper(), method) for method in methods]
