"""From an experiment to the jobs of a sweep."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from apportion.front.paper.experiments import Experiment, Variant
from apportion.front.paper.scales import Scale
from apportion.front.sweep.planning import Job

Settings = Literal["published", "ours"]
Choice = Literal["published", "ours", "both"]
PRESETS: dict[Settings, str] = {"published": "paper", "ours": "default"}


class Planned(NamedTuple):
    """A job, and what it is in the experiment."""

    job: Job
    task: str
    variant: Variant
    settings: Settings

    @property
    def panel(self) -> str:
        """Where its curve is drawn: a task, or a task and a backbone where there are several."""
        backbone = self.variant.backbone
        return self.task if backbone is None else f"{self.task}, {backbone.upper()}"


def columns(choice: Choice) -> tuple[Settings, ...]:
    """Which settings are run: those that stand beside each other."""
    return ("published", "ours") if choice == "both" else (choice,)


def plan(experiment: Experiment, scale: Scale, choice: Choice) -> list[Planned]:
    """A job for each task, variant and kind of settings. Seeds are its lanes."""
    planned = []
    for settings in columns(choice):
        for task in scale.tasks:
            for variant in _variants(scale, settings):
                job = Job(
                    name=_name(settings, task, variant),
                    env=task,
                    method=variant.method,
                    backbone=variant.backbone,
                    seeds=scale.seeds,
                    steps=scale.steps,
                    preset=PRESETS[settings],
                    settings={**scale.settings(variant), **variant.settings},
                )
                planned.append(Planned(job, task, variant, settings))
    return planned


def jobs_of(planned: Sequence[Planned]) -> list[Job]:
    return [each.job for each in planned]


def _variants(scale: Scale, settings: Settings) -> tuple[Variant, ...]:
    """With our settings, variants of what only the published form has are one: the method as it is."""
    if settings == "published":
        return scale.variants
    kept = tuple(variant for variant in scale.variants if not variant.published_only)
    named = dict.fromkeys(variant.method for variant in scale.variants if variant.published_only)
    return (*kept, *(Variant(method.upper(), method) for method in named))


def _name(settings: str, task: str, variant: Variant) -> str:
    words = f"{settings}-{task.rpartition('/')[2]}-{variant.name}-{variant.backbone or ''}"
    return re.sub(r"[^\w.-]+", "-", words.lower().replace("λ", "lambda")).strip("-")
