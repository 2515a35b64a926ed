"""How much of an experiment is run: all of it, half of its steps, or just enough to see that it works."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from apportion.front.paper.experiments import SEEDS, Experiment, Variant
from apportion.training.settings import Schedule

Name = Literal["smoke", "half", "full"]
NAMES: tuple[Name, ...] = ("smoke", "half", "full")

SMOKE_STEPS = 600
ITERATION = Schedule().steps_per_iteration
# The smallest training that has updates, evaluations and edges: it says nothing about any method.
_SMOKE: dict[str, Any] = {
    "steps_per_iteration": ITERATION,
    "updates_per_iteration": 2,
    "warmup_steps": 200,
    "evaluate_every": 100,
    "evaluation_episodes": 1,
    "replay_steps": 1000,
    "workers": 0,
    "env.max_episode_steps": 50,
    "backbone.hidden": (16, 16),
    "backbone.batch_size": 16,
}
_SMOKE_METHODS: dict[str, dict[str, Any]] = {
    "grd": {"method.hidden": (16, 16), "method.segments": 2},
    "rrd": {"method.hidden": (16, 16), "method.segments": 2},
    "rrd-unbiased": {"method.hidden": (16, 16), "method.segments": 2},
}


class Scale(NamedTuple):
    """What of an experiment is run, and for how long."""

    name: Name
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: int
    steps: int

    def settings(self, variant: Variant) -> Mapping[str, Any]:
        """Beside those of the variant itself."""
        if self.name != "smoke":
            return {}
        return {**_SMOKE, **_SMOKE_METHODS.get(variant.method, {})}

    def moments(self, printed: Sequence[int], experiment: Experiment) -> dict[int, int]:
        """Where to look beside each of the paper's steps: at the same one, as far as the training goes; at a
        part of it that corresponds, where it is too short for any."""
        reached = {step: step for step in printed if step <= self.steps}
        return reached or {step: round(step * self.steps / experiment.steps) for step in printed}


def scale_of(experiment: Experiment, name: Name, steps: int | None = None, seeds: int | None = None) -> Scale:
    """The scale of this name; with another number of steps or seeds, where these are given. Steps are those
    of whole iterations, which is what trainings make."""
    smoke = name == "smoke"
    usual = SMOKE_STEPS if smoke else experiment.steps // (2 if name == "half" else 1)
    return Scale(
        name=name,
        tasks=experiment.tasks[: experiment.smoke_tasks] if smoke else experiment.tasks,
        variants=experiment.variants[: experiment.smoke_variants] if smoke else experiment.variants,
        seeds=seeds or (2 if smoke else SEEDS),
        steps=-(-(steps or usual) // ITERATION) * ITERATION,
    )
