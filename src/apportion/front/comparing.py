"""The front door for several runs: `apportion.compare`. The verb calls the same."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apportion.core.config import UserError
from apportion.report.comparison.comparing import Metric, compare_runs
from apportion.report.comparison.figure import draw_comparison
from apportion.report.comparison.results import Comparison


class Compared:
    """Runs beside each other, as a script sees them."""

    def __init__(self, found: Comparison) -> None:
        self.found = found

    def __repr__(self) -> str:
        return f"Compared({len(self.found.tasks)} tasks, {len(self.found.labels)} methods)"

    @property
    def notes(self) -> list[str]:
        """What was left out, and why: a line each."""
        return list(self.found.notes)

    def summary(self) -> dict[str, Any]:
        """What `apportion compare --json` prints."""
        return self.found.summary()

    def records(self) -> list[dict[str, Any]]:
        """A tidy table: one record for each task, method, backbone, seed and step."""
        return list(self.found.rows())

    def frame(self) -> Any:
        """The same as a pandas.DataFrame; pandas is loaded when this is asked for."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("frame() needs pandas: pip install pandas, or use records()") from error
        return pandas.DataFrame(self.records())

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """The same as a CSV file; what is not known is empty."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        records = self.records()
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, records[0])
            writer.writeheader()
            writer.writerows(records)
        return file

    def figure(self, path: str | os.PathLike[str]) -> Path:
        """Curves of each task, and all tasks together, as an SVG, PNG or PDF file."""
        return draw_comparison(self.found, Path(path))


def compare(
    *runs: str | os.PathLike[str],
    metric: Metric = "return",
    at: int | None = None,
    random: Mapping[str, float] | None = None,
) -> Compared:
    """Compare runs: each a run folder, or a folder that holds some, as a sweep leaves it.

    They are compared `at` a step, by default the last that all runs of a task have. `random` is what random
    actions earn, by task; where it is needed and not given, a few episodes are played.
    """
    given = None if random is None else dict(random)
    return Compared(compare_runs([Path(run) for run in runs], metric, at, given))
