"""Figures 4 and 11: the edges over training, and how many of each kind are off."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS
from apportion.front.paper.experiments import STRUCTURE_MOMENTS
from apportion.front.paper.presenting import FORMAT, Done, Finished, Presented, table
from apportion.report import drawing
from apportion.report.figures import draw_structure

_ARROWS = {
    "state_to_reward": "s→r",
    "action_to_reward": "a→r",
    "state_to_state": "s→s",
    "action_to_state": "a→s",
}


def present(finished: Finished) -> Presented:
    """A map of all edges for each task, and the shares of edges that are off at the paper's moments."""
    rows, data = [], {}
    for each in finished.done:
        shares = _shares(each, finished)
        data[f"{each.planned.task}, {each.label}"] = shares
        moments = finished.scale.moments(STRUCTURE_MOMENTS, finished.experiment)
        for moment, step in zip(moments, shares["steps"], strict=True):
            blocks = {name: finished.printed(each.planned.task, name, moment) for name in BLOCKS}
            cells = [_percent(shares["off"][str(step)][name]) for name in BLOCKS]
            rows.append([each.planned.task, each.label, f"{step:,}", *cells])
            if any(blocks.values()):
                said = [found.text.removesuffix(" off") if found else "-" for found in blocks.values()]
                rows.append([each.planned.task, "paper", f"{moment:,}", *said])
    head = ["task", "", "step", *(_ARROWS[name] for name in BLOCKS)]
    text = ["Share of edges that are off (P < 0.5), mean over seeds.", "", *table(head, rows)]
    with drawing.drawing():
        files = [
            draw_structure(each.labelled(), finished.folder / f"{each.planned.job.name}.{FORMAT}")
            for each in finished.done
        ]
    return Presented(data, text, [file for file in files if file is not None], [])


def _shares(each: Done, finished: Finished) -> dict[str, Any]:
    """Of each block at the snapshots nearest to the paper's moments."""
    steps, edges = each.run.read_edges()
    moments = finished.scale.moments(STRUCTURE_MOMENTS, finished.experiment)
    places = [int(np.argmin(np.abs(steps - moment))) for moment in moments.values()]
    off = {str(steps[place]): {name: _off(edges[name][place]) for name in BLOCKS} for place in places}
    return {"steps": [int(steps[place]) for place in places], "off": off}


def _off(block: NDArray[Any]) -> float:
    """The share of a block's edges [L, ...] that are off, of those that have a number."""
    known = block[np.isfinite(block)]
    return float(np.mean(known < 0.5)) if known.size else float("nan")


def _percent(share: float) -> str:
    return f"{share:.0%}" if np.isfinite(share) else "-"
