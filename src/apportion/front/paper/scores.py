"""Learning curves and final scores: `main`, `backbones` and `metaworld`."""

from typing import Any

import numpy as np

from apportion.front.paper.experiments import BEST_RIVAL
from apportion.front.paper.planning import Settings
from apportion.front.paper.presenting import FORMAT, Done, Finished, Presented, spread, table
from apportion.report.comparison.figure import draw_comparison
from apportion.report.comparison.reading import curves_of
from apportion.report.comparison.results import TOGETHER, Comparison, compare_curves
from apportion.report.statistics import interval, iqm

_HEADS: dict[Settings, str] = {"published": "published settings", "ours": "our settings"}


def present(finished: Finished) -> Presented:
    """A table of tasks and methods, both kinds of settings side by side, and curves of each."""
    found = {column: _comparison(finished, finished.of(column)) for column in finished.columns}
    figures = [
        draw_comparison(each, finished.folder / f"curves-{column}.{FORMAT}") for column, each in found.items()
    ]
    rows = []
    for task in dict.fromkeys(each.planned.panel for each in finished.done):
        names = list(dict.fromkeys(label for each in found.values() for label in each.on(task)))
        for name in [*names, *([BEST_RIVAL] if finished.printed(task, BEST_RIVAL) else [])]:
            printed = finished.printed(task, name)
            ours = [_cell(each, task, name) for each in found.values()]
            rows.append([task, name, *ours, printed.text if printed else "-"])
    head = ["task", "method", *(_HEADS[column] for column in found), "the paper prints"]
    what = "success rate" if finished.experiment.metric == "success" else "return"
    text = [
        f"Mean {what} ± standard deviation over seeds at the end, then the interquartile mean with its 95% "
        "interval.",
        "",
        *table(head, rows),
    ]
    data: dict[str, Any] = {column: each.summary() for column, each in found.items()}
    notes = dict.fromkeys(line for each in found.values() for line in each.notes)
    alone = [line for line in notes if not line.startswith(TOGETHER)]  # the page has nothing over all tasks
    return Presented(data, text, figures, alone)


def _comparison(finished: Finished, done: list[Done]) -> Comparison:
    curves = [
        curve
        for each in done
        for curve in curves_of(
            each.run,
            each.run.read_config(),
            each.evaluations(),
            each.planned.panel,
            each.planned.variant.name,
        )
    ]
    return compare_curves(curves, finished.experiment.metric, trusted=False)


def _cell(found: Comparison, task: str, name: str) -> str:
    if name == BEST_RIVAL:
        rivals = [label for label in found.on(task) if not label.startswith("GRD")]
        name = max(rivals, key=lambda label: float(found.values(task, label).mean()), default="")
    values = found.values(task, name)
    if not len(values):
        return "-"
    middle, low, high = interval(values, iqm)
    form = ",.0f" if abs(middle) >= 100 else ".2f"
    known = "" if np.isnan(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{spread(values)}; {middle:{form}}{known}"
