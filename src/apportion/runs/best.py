"""The best agent of each lane, by the return of its evaluations, kept beside the newest checkpoint.

Lanes are trainings of their own, so each has its best moment at a step of its own. The agents of those
moments lie together in one small checkpoint (no replay), which is written whenever a whole one is: so the two
always tell of the same past, also after a crash and a resume.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check, from_dict
from apportion.core.spec import Spec
from apportion.runs import checkpoint
from apportion.runs import saved as saving
from apportion.runs.schemas import BestMeta
from apportion.training.agent import AgentState
from apportion.training.evaluate import Report
from apportion.training.settings import Config


class Best(NamedTuple):
    """Each lane's agent at its best evaluation."""

    agent: AgentState  # [L, ...] on the host
    steps: NDArray[np.int64]  # [L]
    returns: NDArray[np.float64]  # [L]; -inf while every return was NaN


def better(best: Best | None, report: Report) -> Best:
    """The best so far, with one more evaluation. Of equal ones the first stays."""
    steps = np.full(len(report.evaluation.returns), report.step, np.int64)
    returns = np.nan_to_num(report.evaluation.returns, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    if best is None:
        return Best(jax.tree.map(np.array, report.agent), steps, returns)
    improved = returns > best.returns
    if not improved.any():
        return best

    def choose(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        return np.where(improved.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

    return Best(
        agent=jax.tree.map(choose, best.agent, report.agent),
        steps=choose(best.steps, steps),
        returns=choose(best.returns, returns),
    )


def write(folder: Path, step: int, best: Best, keep: int, settings: dict[str, Any]) -> None:
    """What was best by this step."""
    meta = {"steps": best.steps, "returns": best.returns, "settings": settings}
    checkpoint.save(folder, step, best.agent, meta, keep)


def read(folder: Path, config: Config, spec: Spec, step: int) -> tuple[Best | None, list[str]]:
    """What was best by a step, None where that cannot be read any more; and a line if it is not that of the
    step itself, as a checkpoint of the same step has it."""
    stored = [each for each in checkpoint.steps(folder) if each <= step]
    try:
        agent, loaded = saving.read_agent(folder, config, spec, step)
        meta = parse_meta(loaded.meta, config.lanes)
    except UserError as error:
        return None, [f"the best policies so far are lost ({error})"] if stored else []
    returns = [-np.inf if value is None else value for value in meta["returns"]]
    best = Best(agent, np.array(meta["steps"], np.int64), np.array(returns, np.float64))
    older = [f"the best policies are those of step {loaded.step}"] if loaded.step < step else []
    return best, [*loaded.skipped, *older]


def moments(folder: Path, lanes: int) -> tuple[list[dict[str, Any]] | None, list[str]]:
    """Step and return of each lane's best evaluation, as last written, None where nothing is kept; and a line
    for each newer one that cannot be read."""
    found, skipped = checkpoint.newest_meta(folder)
    notes = [f"best: {line}" for line in skipped]
    if found is None:
        return None, notes
    try:
        meta = parse_meta(found, lanes)
    except UserError as error:
        return None, [*notes, f"best: {error}"]
    pairs = zip(meta["steps"], meta["returns"], strict=True)
    return [{"step": step, "return": value} for step, value in pairs], notes


def parse_meta(meta: dict[str, Any], lanes: int) -> BestMeta:
    """What stands beside the best agents."""
    found = from_dict(BestMeta, meta, "meta")
    fits = len(found["steps"]) == len(found["returns"]) == lanes
    check(fits, f"meta has not {lanes} steps and returns, one for each lane")
    return found
