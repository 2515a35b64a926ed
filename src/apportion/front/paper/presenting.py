"""What all presenters share: the runs of an experiment as they get them, and what they give back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apportion.front.paper.experiments import Experiment, Printed
from apportion.front.paper.planning import Planned, Settings
from apportion.front.paper.scales import Scale
from apportion.report.figures import Labelled, evaluations
from apportion.runs.folder import RunFolder

FORMAT = "svg"


class Done(NamedTuple):
    """A run of an experiment."""

    planned: Planned
    run: RunFolder

    @property
    def label(self) -> str:
        """The name that the paper gives it, and with which settings."""
        return f"{self.planned.variant.name} ({self.planned.settings})"

    def labelled(self) -> Labelled:
        return Labelled(self.run, self.label, self.run.read_spec(), self.run.read_config())

    def evaluations(self) -> list[dict[str, Any]]:
        return evaluations(self.run)


class Finished(NamedTuple):
    """An experiment that has been run."""

    experiment: Experiment
    scale: Scale
    done: Sequence[Done]
    folder: Path  # for figures

    @property
    def columns(self) -> list[Settings]:
        return list(dict.fromkeys(each.planned.settings for each in self.done))

    def of(self, settings: Settings) -> list[Done]:
        return [each for each in self.done if each.planned.settings == settings]

    def printed(self, task: str, variant: str, step: int | None = None) -> Printed | None:
        """What the paper prints there; without a step, at the end."""
        wanted = self.experiment.steps if step is None else step
        found = [p for p in self.experiment.printed if (p.task, p.variant, p.step) == (task, variant, wanted)]
        return found[0] if found else None


class Presented(NamedTuple):
    """Our side of an experiment."""

    data: dict[str, Any]  # for JSON
    text: list[str]  # lines of Markdown: tables
    figures: list[Path]
    notes: list[str]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; the first two columns are words."""
    line = "|".join(["---", "---", *["---:"] * (len(head) - 2)])
    return [f"| {' | '.join(head)} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def spread(values: Any, form: str = "") -> str:
    """Mean ± standard deviation over seeds, as the paper has it; what is no number is left out."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if not known.size:
        return "-"
    chosen = form or (",.0f" if np.abs(known).max() >= 100 else ".2f")
    return f"{known.mean():{chosen}} ± {known.std():{chosen}}"
