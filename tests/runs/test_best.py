"""Each lane's best agent: by return, the first of equals, never one without a number."""

import numpy as np
from numpy.typing import NDArray

from apportion.runs.checkpoint import Best, better
from apportion.training.agent import AgentState
from apportion.training.evaluate import Evaluation, Report

NAN = float("nan")


def _report(step: int, *returns: float) -> Report:
    """An agent that consists of the step."""
    scores: NDArray[np.float64] = np.array(returns)
    evaluation = Evaluation(scores, *[scores] * 7, step_rewards=scores > 0, episodes=[])
    agent = AgentState(np.full((len(returns), 3), step), np.full(len(returns), step), scaling=None)
    return Report(step, evaluation, {}, np.ones((len(returns), 2)), agent, np.isnan(scores))


def _best(*reports: Report) -> Best:
    found = None
    for report in reports:
        found = better(found, report)
    assert found is not None
    return found


def test_each_lane_has_its_best_at_a_step_of_its_own() -> None:
    best = _best(_report(10, 1.0, 5.0), _report(20, 3.0, 4.0), _report(30, 2.0, 5.0))
    assert (best.steps.tolist(), best.returns.tolist()) == ([20, 10], [3.0, 5.0])
    assert best.agent.method.tolist() == [[20] * 3, [10] * 3]
    assert best.agent.backbone.tolist() == [20, 10]


def test_a_return_that_is_no_number_is_never_best() -> None:
    best = _best(_report(10, NAN, 1.0), _report(20, -7.0, NAN), _report(30, NAN, NAN))
    assert (best.steps.tolist(), best.returns.tolist()) == ([20, 10], [-7.0, 1.0])
