"""Figures 7 and 10: the redistributed reward of each step of an episode beside the true one."""

from typing import Any

import numpy as np

from apportion.front.paper.presenting import FORMAT, Done, Finished, Presented, table
from apportion.report import drawing
from apportion.report.figures import draw_rewards
from apportion.training.evaluate import pearson


def present(finished: Finished) -> Presented:
    """A figure for each task, and how well the two agree in the last episode of each seed."""
    data = {f"{each.planned.task}, {each.label}": _agreement(each) for each in finished.done}
    columns = ("correlation", "sum_redistributed", "sum_true")
    rows = [
        [name, str(lane["seed"]), *(_number(lane[column]) for column in columns)]
        for name, lanes in data.items()
        for lane in lanes
    ]
    head = ["run", "seed", "correlation over steps", "sum of redistributed", "sum of true"]
    with drawing.drawing():
        files = [
            draw_rewards(each.labelled(), finished.folder / f"{each.planned.job.name}.{FORMAT}")
            for each in finished.done
        ]
    text = ["The last stored evaluation episode of each seed.", "", *table(head, rows)]
    return Presented(dict(data), text, [file for file in files if file is not None], [])


def _agreement(each: Done) -> list[dict[str, Any]]:
    step = each.run.episode_steps()[-1]
    config = each.run.read_config()
    lanes = enumerate(each.run.read_episodes(step))
    return [
        {
            "seed": config["seed"] + lane,
            "correlation": pearson(episodes[0]["redistributed"], episodes[0]["true_rewards"]),
            "sum_redistributed": float(np.sum(episodes[0]["redistributed"], dtype=np.float64)),
            "sum_true": float(np.sum(episodes[0]["true_rewards"], dtype=np.float64)),
        }
        for lane, episodes in lanes
        if episodes  # one that was frozen by then has none
    ]


def _number(value: float) -> str:
    return f"{value:,.3f}" if np.isfinite(value) else "-"
