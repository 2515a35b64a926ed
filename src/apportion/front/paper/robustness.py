"""Figure 6: noise on dimensions that are always zero, on what the policy sees at evaluation."""

from pathlib import Path
from typing import Any

from apportion.core.config import UserError
from apportion.front.paper.experiments import DEAD, NOISE
from apportion.front.paper.presenting import FORMAT, Done, Finished, Presented, spread, table
from apportion.report import drawing
from apportion.report.figures import draw_robustness
from apportion.runs.atomic import read_json, write_json
from apportion.runs.evaluation import EvaluationSettings, evaluate_run

EPISODES = 10  # for each seed and each amount of noise
_SMOKE_NOISE = (0.0, 1.0)


def present(finished: Finished) -> Presented:
    """Return over the noise's standard deviation: a row for each method, and a curve."""
    smoke = finished.scale.name == "smoke"
    noise = _SMOKE_NOISE if smoke else NOISE
    episodes = 1 if smoke else EPISODES
    found = {
        each.label: [_played(each, finished.folder / "noise", std, episodes) for std in noise]
        for each in finished.done
    }
    rows = [[name, "ours", *(spread(each["returns"]) for each in results)] for name, results in found.items()]
    text = [
        f"Mean return ± standard deviation over seeds (episodes per seed: {episodes}), by the standard "
        f"deviation of the noise on dimensions {DEAD[0]} to {DEAD[-1]}, counted from 0.",
        "",
        *table(["", "", *(f"{std:g}" for std in noise)], rows),
    ]
    results = [result for each in found.values() for result in each]
    with drawing.drawing():
        labelled = [each.labelled() for each in finished.done]
        figure = draw_robustness(labelled, results, finished.folder / f"robustness.{FORMAT}")
    return Presented(dict(found), text, [figure] if figure else [], [])


def _played(each: Done, folder: Path, std: float, episodes: int) -> dict[str, Any]:
    """Fresh episodes with this noise; those of an earlier call, where they are of the same policy."""
    file = folder / f"{each.planned.job.name}-{std:g}.json"
    dims = tuple(str(dim) for dim in DEAD) if std else ()
    wanted = {"step": each.evaluations()[-1]["step"], "episodes": episodes}
    try:
        before = read_json(file)
    except (OSError, UserError):
        before = {}
    if all(before.get(name) == value for name, value in wanted.items()):
        return before
    data = evaluate_run(each.run, EvaluationSettings(episodes, noise=std, noise_dims=dims)).data
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, data)
    return data
