"""What a run says at a glance: learning curves, last scores, and in plain words what drives the reward."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.report import packing
from apportion.report.drawing import shortened
from apportion.report.statistics import Interval, band, interval, iqm, mean, median, thinned
from apportion.report.structure import Drivers
from apportion.runs.summary import step_rewards

# --- Learning curves


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
SCORES = ("return", "success", "reward_correlation", "return_error")  # that are shown large
CORRELATIONS = ("reward_correlation", "episode_correlation")  # only with a true reward for each step


def curves(evaluations: list[dict[str, Any]], lanes: int, points: int = 200) -> dict[str, Any]:
    """Steps, and for each metric the lanes [K, L], their mean and their IQM with bands."""
    kept = [evaluations[place] for place in thinned(len(evaluations), points)]
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


def _packed(curve: Interval) -> dict[str, Any]:
    return {name: packing.floats(values) for name, values in curve._asdict().items()}


# --- The last evaluation


def scores(evaluations: list[dict[str, Any]], lanes: int) -> dict[str, Any]:
    """Return, success rate, reward correlation and return error of the last evaluation, over lanes and for
    each; None for a success that is not reported."""
    last = evaluations[-1:]
    told = {name: per_lane(last, name, lanes) for name in SCORES if last}
    if told and "success" not in last[0]:
        del told["success"]
    return dict.fromkeys(SCORES) | {name: _score(values[0]) for name, values in told.items()}


def _score(values: NDArray[np.float64]) -> dict[str, Any]:
    centre, *bounds = interval(values, iqm)
    middle, *around = interval(values, median)
    return {
        "iqm": centre,
        "interval": bounds,
        "median": middle,
        "median_interval": around,
        "lanes": values,
        "missing": int(np.sum(~np.isfinite(values))),
    }


def sentence(drivers: Drivers | None, method: str, lanes: int, evaluated: bool) -> str:
    """What drives the reward, for somebody who reads nothing else."""
    if not evaluated:
        return "There is no evaluation yet: nothing can be said about the reward."
    if drivers is None:
        return (
            f"The method {method} has no causal graph, so this run does not say which dimensions "
            "drive the reward."
        )
    names, all_of_them = drivers.names, drivers.dimensions
    who = "the one seed keeps" if lanes == 1 else f"most of the {lanes} seeds keep"
    if not drivers.known:
        return (
            "Nothing can be said about the reward: the graphs have no numbers left, as every seed diverged."
        )
    more = f" For {drivers.undecided} more the data cannot tell." if drivers.undecided else ""
    if not names and drivers.undecided:
        which = f"{drivers.undecided} of {all_of_them}"
        return f"Nothing is known to drive the reward: for {which} dimensions the data cannot tell."
    if not names:
        return f"Nothing drives the reward: no dimension has an edge to it that {who}."
    if len(names) == all_of_them and all_of_them > 2:
        return f"All {all_of_them} dimensions have an edge to the reward: the graph tells nothing apart."
    have = "has" if len(names) == 1 else "have"
    return (
        f"The reward is driven by {_listed(names)}: {len(names)} of {all_of_them} dimensions {have} an edge "
        f"to it that {who}.{more}"
    )


def _listed(names: list[str], most: int = 8) -> str:
    shown = [shortened(name, 40) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
