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

from apportion.core.errors import UserError
from apportion.core.spec import Spec
from apportion.runs import checkpoint
from apportion.runs import saved as saving
from apportion.training.agent import AgentState
from apportion.training.evaluator import Report
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


def write(folder: Path, step: int, best: Best, keep: int) -> None:
    """What was best by this step."""
    checkpoint.save(folder, step, best.agent, {"steps": best.steps, "returns": best.returns}, keep)


def read(folder: Path, config: Config, spec: Spec, at_most: int) -> Best | None:
    """What was best by step `at_most`; None where that was not written down, or cannot be read any more."""
    try:
        agent, loaded = saving.read_agent(folder, config, spec, at_most)
    except UserError:
        return None
    steps, returns = loaded.meta["steps"], loaded.meta["returns"]
    return Best(agent, np.array(steps, np.int64), np.array(returns, np.float64))


def moments(folder: Path) -> list[dict[str, Any]] | None:
    """Step and return of each lane's best evaluation, as last written; None where nothing is kept."""
    meta = checkpoint.newest_meta(folder)
    if meta is None:
        return None
    pairs = zip(meta["steps"], meta["returns"], strict=True)
    return [{"step": step, "return": value if np.isfinite(value) else None} for step, value in pairs]
