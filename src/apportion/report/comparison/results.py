"""The numbers of a comparison: of each task, and of all on a scale from random actions to the oracle."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.report.comparison.reading import Curve
from apportion.report.statistics import (
    Band,
    Interval,
    area,
    improvement,
    interval,
    iqm,
    mean,
    profile,
    stratified,
)
from apportion.runs.atomic import plain

ORACLE = "oracle"
THRESHOLDS = 51  # of a performance profile

Values = NDArray[np.float64]  # [L]


@dataclass(frozen=True)
class Comparison:
    """Curves of all seeds, and where they are compared."""

    curves: list[Curve]
    metric: str  # return or success
    steps: dict[str, int]  # of each task: where its runs are compared
    random: dict[str, float]  # by task, where it is known
    notes: list[str]
    silent: list[Curve] = field(default_factory=list)  # seeds that have no number at any step

    @property
    def tasks(self) -> list[str]:
        return list(self.steps)

    @cached_property
    def labels(self) -> list[str]:
        """Methods that have a number on some task."""
        known = [curve for curve in self.curves if curve.task in self.steps and self._counts(curve)]
        return list(dict.fromkeys(curve.label for curve in known))

    def of(self, task: str, label: str) -> list[Curve]:
        """The seeds of a task and a method that have a number where they are compared."""
        found = [curve for curve in self.curves if (curve.task, curve.label) == (task, label)]
        return [curve for curve in found if self._counts(curve)]

    def _counts(self, curve: Curve) -> bool:
        return bool(np.isfinite(curve.at(self.steps[curve.task], self.metric)))

    def on(self, task: str) -> list[str]:
        """The methods that can be compared on a task."""
        return [label for label in self.labels if self.of(task, label)]

    def left_out(self, task: str, label: str) -> list[Curve]:
        """Its seeds that stood still or diverged: evaluated where they are compared, without a number."""
        found = [
            curve for curve in [*self.curves, *self.silent] if (curve.task, curve.label) == (task, label)
        ]
        evaluated = [curve for curve in found if self.steps[task] in curve.steps]
        return [curve for curve in evaluated if not self._counts(curve)]

    def _first(self, task: str) -> int:
        """The first step by which all that are compared have been evaluated."""
        return max(int(curve.steps[0]) for label in self.on(task) for curve in self.of(task, label))

    def values(self, task: str, label: str) -> Values:
        return np.array([curve.at(self.steps[task], self.metric) for curve in self.of(task, label)])

    @cached_property
    def oracle(self) -> dict[str, float]:
        """By task: the interquartile mean of the oracle's seeds; of several oracles, the best one's."""
        labels = dict.fromkeys(curve.label for curve in self.curves if curve.method == ORACLE)
        found = {task: [self.values(task, label) for label in labels] for task in self.tasks}
        known = {task: [iqm(values) for values in lanes if len(values)] for task, lanes in found.items()}
        return {task: float(max(scores)) for task, scores in known.items() if scores}

    def scale(self, task: str) -> tuple[float, float] | None:
        """What is 0 and what is 1 on the common scale; None where nothing says. Success rates need none."""
        if self.metric == "success":
            return 0.0, 1.0
        low, high = self.random.get(task), self.oracle.get(task)
        return None if low is None or high is None or high <= low else (low, high)

    def normalised(self, task: str, values: Any) -> Any:
        low, high = self.scale(task) or (np.nan, np.nan)
        return (values - low) / (high - low)

    # --- Several tasks

    @cached_property
    def common(self) -> list[str]:
        """Tasks that every method has."""
        return [task for task in self.tasks if len(self.on(task)) == len(self.labels)]

    @cached_property
    def scaled(self) -> list[str]:
        """Those of them that have a scale."""
        return [task for task in self.common if self.scale(task) is not None]

    def strata(self, label: str) -> list[Values]:
        return [self.normalised(task, self.values(task, label)) for task in self.scaled]

    # --- As data

    def summary(self) -> dict[str, Any]:
        """What `apportion compare --json` prints."""
        data: dict[str, Any] = plain(
            {
                "metric": self.metric,
                "tasks": {task: self._task(task) for task in self.tasks},
                "aggregate": self.aggregate,
                "steps": self.steps,
                "random": self.random,
                "oracle": self.oracle,
                "runs": list(dict.fromkeys(str(curve.run.path) for curve in self.curves)),
                "notes": self.notes,
            }
        )
        return data

    def rows(self) -> Iterator[dict[str, Any]]:
        """A tidy table: one row for each task, method, backbone, seed and step. None: not known."""
        for curve in self.curves:
            normalised = self.normalised(curve.task, curve.scores[self.metric])
            for k, step in enumerate(curve.steps.tolist()):
                row = {
                    "task": curve.task,
                    "method": curve.method,
                    "backbone": curve.backbone,
                    "seed": curve.seed,
                    "step": step,
                    **{name: values[k] for name, values in curve.scores.items()},
                    "normalised": normalised[k],
                    "label": curve.label,
                    "run": str(curve.run.path),
                }
                yield plain(row)

    def _task(self, task: str) -> dict[str, Any]:
        labels = self.on(task)
        everything = np.concatenate([self.values(task, label) for label in labels])
        thresholds = np.linspace(everything.min(), everything.max(), THRESHOLDS)
        return {label: self._method(task, label, labels, thresholds) for label in labels}

    def _method(self, task: str, label: str, rivals: list[str], thresholds: Values) -> dict[str, Any]:
        curves, values = self.of(task, label), self.values(task, label)
        areas = [_area(curve, self.metric, self._first(task), self.steps[task]) for curve in curves]
        normalised = None
        if self.scale(task) is not None:
            normalised = _told(interval(self.normalised(task, values), iqm))
        return {
            **_scores([values]),
            "seeds": [curve.seed for curve in curves],
            "left_out": [curve.seed for curve in self.left_out(task, label)],
            "values": values,
            "auc": _told(interval(areas, iqm)),
            "normalised": normalised,
            **self._success(task, curves),
            "profile": _profile(profile([values], thresholds), thresholds),
            "improvement_over": {
                other: _chance(improvement([values], [self.values(task, other)]))
                for other in rivals
                if other != label
            },
        }

    def _success(self, task: str, curves: list[Curve]) -> dict[str, Any]:
        rates = [curve.at(self.steps[task], "success") for curve in curves]
        return {"success": _told(interval(rates, iqm))} if np.isfinite(rates).any() else {}

    @cached_property
    def aggregate(self) -> dict[str, Any]:
        """All tasks together, method by method."""
        top = max((float(lanes.max()) for label in self.labels for lanes in self.strata(label)), default=1.0)
        thresholds = np.linspace(0, max(1.0, top), THRESHOLDS)
        methods = {
            label: {
                **_scores(self.strata(label)),
                "profile": _profile(profile(self.strata(label), thresholds), thresholds),
                "improvement_over": {
                    other: _chance(improvement(self._raw(label), self._raw(other)))
                    for other in self.labels
                    if other != label
                },
            }
            for label in self.labels
        }
        return {"tasks": self.common, "scaled_tasks": self.scaled, "methods": methods}

    def _raw(self, label: str) -> list[Values]:
        """Who beats whom on a task needs no scale."""
        return [self.values(task, label) for task in self.common]


def _area(curve: Curve, metric: str, first: int, last: int) -> float:
    """Between the same two steps for all that are compared. Where a curve was not evaluated at the first of
    them, on the line between its neighbours."""
    known = np.isfinite(curve.scores[metric])
    steps, values = curve.steps[known], curve.scores[metric][known]
    within = np.unique([max(first, int(steps[0])), *steps[(steps >= first) & (steps <= last)]])
    return area(within, np.interp(within, steps, values))


def _scores(strata: list[Values]) -> dict[str, Any]:
    middle, average = stratified(strata, iqm), stratified(strata, mean)
    return {
        "iqm": middle.centre,
        "interval": [middle.low, middle.high],
        "mean": average.centre,
        "mean_interval": [average.low, average.high],
    }


def _told(found: Interval) -> dict[str, Any]:
    return {"iqm": found.centre, "interval": [found.low, found.high]}


def _chance(found: Interval) -> dict[str, Any]:
    return {"probability": found.centre, "interval": [found.low, found.high]}


def _profile(found: Band, thresholds: Values) -> dict[str, Any]:
    return {"thresholds": thresholds, "share": found.centre, "low": found.low, "high": found.high}
