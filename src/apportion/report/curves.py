"""Learning curves: every number that evaluations log, over lanes, with 95% bands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.report import packing
from apportion.report.statistics import Band, band, iqm, mean, thinned
from apportion.runs.summary import step_rewards

POINTS = 200  # more than a screen shows
TITLES = {
    "return": "Return",
    "success": "Success rate",
    "reward_correlation": "Reward correlation",
    "return_error": "Return error",
    "constant_error": "Return error of one constant reward per step",
    "episode_correlation": "Reward correlation in evaluation episodes",
    "return_std": "Spread of the return between episodes",
    "length": "Episode length",
    "policy_mask_on": "Share of observations the policy sees",
}
CORRELATIONS = ("reward_correlation", "episode_correlation")  # only with a true reward for each step


def curves(evaluations: list[dict[str, Any]], lanes: int) -> dict[str, Any]:
    """Steps, and for each metric the lanes [K, L], their mean and their IQM with bands."""
    kept = [evaluations[place] for place in thinned(len(evaluations), POINTS)]
    left_out = () if step_rewards(evaluations) else CORRELATIONS
    return {
        "steps": [entry["step"] for entry in kept],
        "metrics": [
            {"name": name, "title": title, **_metric(per_lane(kept, name, lanes))}
            for name, title in TITLES.items()
            if name not in left_out and any(name in entry for entry in kept)
        ],
    }


def per_lane(evaluations: list[dict[str, Any]], name: str, lanes: int) -> NDArray[np.float64]:
    """[K, L]: a metric of all evaluations; NaN where it is unknown."""
    values = np.full((len(evaluations), lanes), np.nan)
    for row, entry in zip(values, evaluations, strict=True):
        row[:] = np.asarray(entry.get(name, np.nan), np.float64)  # None, which stands for NaN, becomes it
    return values


def _metric(values: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "lanes": packing.floats(values),
        "mean": _packed(band(values, mean)),
        "iqm": _packed(band(values, iqm)),
    }


def _packed(curve: Band) -> dict[str, Any]:
    return {name: packing.floats(values) for name, values in curve._asdict().items()}
