"""Table 1: return and the share of s→r edges that are on, over steps, for each λ1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.front.paper.experiments import TABLE_1_STEPS
from apportion.front.paper.planning import Settings
from apportion.front.paper.presenting import FORMAT, Done, Finished, Presented, spread, table
from apportion.report import drawing
from apportion.report.overview import per_lane
from apportion.report.statistics import FEW, Interval, band, difference, mean

GAIN = "at the end, less λ1 = 0 (95% interval)"


class Row(NamedTuple):
    """One λ1 over training."""

    label: str
    steps: NDArray[np.int64]  # [K] of evaluations
    returns: NDArray[np.float64]  # [K, L]
    edge_steps: NDArray[np.int64]  # [J] of snapshots
    sparsity: NDArray[np.float64]  # [J, L] share of s→r edges that are on: the paper's S


def present(finished: Finished) -> Presented:
    """The paper's table with ours above it, row by row, and both numbers over all steps."""
    rows = [_row(each) for each in finished.done]
    moments = finished.scale.moments(TABLE_1_STEPS, finished.experiment)
    without: dict[Settings, Row] = {}  # the first λ1, which is 0
    gains, cells = [], []
    for row, each in zip(rows, finished.done, strict=True):
        base = without.setdefault(each.planned.settings, row)
        gains.append(_gain(row, base, max(moments.values())))
    for row, each, gain in zip(rows, finished.done, gains, strict=True):
        cells.append([row.label, "ours", *(_cell(row, moment) for moment in moments.values()), _words(gain)])
        printed = [finished.printed(each.planned.task, each.planned.variant.name, step) for step in moments]
        if any(printed):
            cells.append(["", "paper", *(p.text if p else "-" for p in printed), ""])
    evaluated = rows[0].steps  # the same in all
    head = ["", "", *(f"{evaluated[_nearest(evaluated, moment)]:,}" for moment in moments.values()), GAIN]
    scaled = list(moments) != list(moments.values())
    aside = [f"The paper's columns are at {', '.join(f'{step:,}' for step in moments)} steps.", ""]
    text = ["Mean return ± standard deviation over seeds (share of s→r edges that are on).", ""]
    text += table(head, cells) + (aside if scaled else [])
    data = {
        row.label: _data(row, list(moments.values()), gain) for row, gain in zip(rows, gains, strict=True)
    }
    few = 1 < finished.scale.seeds < FEW
    notes = [f"Fewer than {FEW} seeds, so intervals are too narrow."] if few else []
    return Presented(data, text, [_figure(rows, finished.folder / f"sparsity.{FORMAT}")], notes)


def _row(each: Done) -> Row:
    evaluations, lanes = each.evaluations(), each.planned.job.seeds
    steps, edges = each.run.read_edges()
    on = np.asarray(edges["state_to_reward"], np.float64)  # [J, L, S]
    sparsity = np.where(np.isnan(on).any(axis=2), np.nan, np.mean(on >= 0.5, axis=2))
    at = np.array([entry["step"] for entry in evaluations], np.int64)
    return Row(each.label, at, per_lane(evaluations, "return", lanes), steps, sparsity)


def _cell(row: Row, moment: int) -> str:
    returns, on = _at(row, moment)
    return f"{spread(returns)} ({np.nanmean(on):.2f})" if np.isfinite(on).any() else spread(returns)


def _at(row: Row, moment: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns and sparsity [L] where they were measured nearest to a moment."""
    return row.returns[_nearest(row.steps, moment)], row.sparsity[_nearest(row.edge_steps, moment)]


def _nearest(steps: NDArray[np.int64], moment: int) -> int:
    return int(np.argmin(np.abs(steps - moment)))


def _gain(row: Row, base: Row, moment: int) -> Interval | None:
    """What a λ1 gains at a moment over none; unknown with a single seed."""
    gain = difference(_at(row, moment)[0], _at(base, moment)[0], mean)
    return None if row is base or np.isnan(gain.centre) else gain


def _words(gain: Interval | None) -> str:
    return "-" if gain is None else f"{gain.centre:+,.0f} [{gain.low:+,.0f}, {gain.high:+,.0f}]"


def _data(row: Row, moments: Sequence[int], gain: Interval | None) -> dict[str, Any]:
    at = {str(moment): _at(row, moment) for moment in moments}
    return {
        "at": {step: {"returns": returns, "sparsity": on} for step, (returns, on) in at.items()},
        "steps": row.steps,
        "returns": row.returns,
        "edge_steps": row.edge_steps,
        "sparsity": row.sparsity,
        "gain": None if gain is None else gain._asdict(),
    }


def _figure(rows: list[Row], path: Path) -> Path:
    with drawing.drawing():
        figure = drawing.new_figure(9, 3.2)
        left, right = figure.subplots(1, 2)
        for number, row in enumerate(rows):
            colour = drawing.colour(number)
            drawing.draw_band(left, row.steps, band(row.returns, mean), colour, row.label)
            drawing.draw_band(right, row.edge_steps, band(row.sparsity, mean), colour, row.label)
        left.set(title="Swimmer-v4", xlabel="environment steps", ylabel="return")
        right.set(title="Sparsity S", xlabel="environment steps", ylabel="share of s→r edges on")
        right.set_ylim(-0.02, 1.02)
        left.legend(fontsize=7)
        return drawing.save(figure, path)
