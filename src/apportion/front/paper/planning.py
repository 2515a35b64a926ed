"""From an experiment to the jobs of a sweep."""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from apportion.front.paper.experiments import Experiment, Variant
from apportion.front.paper.scales import Scale
from apportion.front.sweep.jobs import Job
from apportion.training.varied import flags_of_lanes

Settings = Literal["published", "ours"]
Choice = Literal["published", "ours", "both"]
PRESETS: dict[Settings, str] = {"published": "paper", "ours": "default"}


class Planned(NamedTuple):
    """A job, and what it is in the experiment."""

    job: Job
    task: str
    variant: Variant
    settings: Settings
    place: int = 0  # among the variants that are lanes of the same job

    @property
    def panel(self) -> str:
        """Where its curve is drawn: a task, or a task and a backbone where there are several."""
        backbone = self.variant.backbone
        return self.task if backbone is None else f"{self.task}, {backbone.upper()}"


def columns(choice: Choice) -> tuple[Settings, ...]:
    """Which settings are run: those that stand beside each other."""
    return ("published", "ours") if choice == "both" else (choice,)


def plan(experiment: Experiment, scale: Scale, choice: Choice) -> list[Planned]:
    """A job for each task, variant and kind of settings. Seeds are its lanes, and so are variants that differ
    in no more than lanes may."""
    planned = []
    for settings in columns(choice):
        for task in scale.tasks:
            for variants in _together(_variants(scale, settings)):
                job = Job(
                    name=_name(settings, task, variants),
                    env=task,
                    method=variants[0].method,
                    backbone=variants[0].backbone,
                    seeds=scale.seeds,
                    steps=scale.steps,
                    preset=PRESETS[settings],
                    settings={**scale.settings(variants[0]), **_settings(variants)},
                )
                planned += [Planned(job, task, each, settings, place) for place, each in enumerate(variants)]
    return planned


def jobs_of(planned: Sequence[Planned]) -> list[Job]:
    """Each once, however many variants are its lanes."""
    return list({each.job.name: each.job for each in planned}.values())


def _together(variants: tuple[Variant, ...]) -> list[list[Variant]]:
    """Those that can be lanes of one process, and each other one by itself."""
    groups: dict[Any, list[Variant]] = {}
    for variant in variants:
        alone = variant.name if _in_lanes(variant) is None else None
        groups.setdefault((variant.method, variant.backbone, alone), []).append(variant)
    return list(groups.values())


def _in_lanes(variant: Variant) -> str | None:
    """The one setting that makes the variant, where lanes may differ in it."""
    names = list(variant.settings)
    return names[0] if len(names) == 1 and names[0] in flags_of_lanes(variant.method) else None


def _settings(variants: list[Variant]) -> dict[str, Any]:
    if len(variants) == 1:
        return dict(variants[0].settings)
    [name] = {name for variant in variants for name in variant.settings}
    return {"vary": {name: [variant.settings[name] for variant in variants]}}


def _variants(scale: Scale, settings: Settings) -> tuple[Variant, ...]:
    """With our settings, variants of what only the published form has are one: the method as it is."""
    if settings == "published":
        return scale.variants
    kept = tuple(variant for variant in scale.variants if not variant.published_only)
    named = dict.fromkeys(variant.method for variant in scale.variants if variant.published_only)
    return (*kept, *(Variant(method.upper(), method) for method in named))


def _name(settings: str, task: str, variants: list[Variant]) -> str:
    first = variants[0]
    named = first.name if len(variants) == 1 else f"{first.method}-{str(_in_lanes(first)).rpartition('.')[2]}"
    words = f"{settings}-{task.rpartition('/')[2]}-{named}-{first.backbone or ''}"
    return re.sub(r"[^\w.-]+", "-", words.lower().replace("λ", "lambda")).strip("-")
