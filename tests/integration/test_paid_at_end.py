"""An environment that pays only at the end of its own accord: nothing pretends to know its steps' rewards."""

import numpy as np
import pytest
from driver import Run, apportion, remarks, tiny

from apportion.runs import logs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["rd", "observed"])
def late(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A tiny run, and what was said while it trained."""
    out = tmp_path_factory.mktemp("late") / "run"
    flags = tiny(request.param, "--workers", "0", "--steps", "800")
    flags.remove("--quiet")
    answer = apportion("train", "odd_envs:Late-v0", "--out", out, *flags)
    assert (answer.code, remarks(answer.err)) == (0, [])
    return Run(out), answer.err


def test_there_is_no_correlation_and_the_return_error_leads(late: tuple[Run, str]) -> None:
    run, said = late
    data = apportion("show", run.path, "--json").json
    assert data["step_rewards"] is False
    assert data["reward_correlation"] is None
    assert data["reward_correlation_per_lane"] == [None, None]
    assert all(np.isfinite(data["return_error_per_lane"]))
    evaluations = [line for line in logs.read(run.metrics) if line["kind"] == "eval"]
    assert all(line["episode_correlation"] == [None, None] for line in evaluations)
    table = apportion("show", run.path).out
    assert table.index("return error") < table.index("reward correlation")
    assert " - " in table.split("Last evaluation")[1]
    assert "return error" in said
    assert "correlation" not in said
    played = apportion("eval", run.path, "--episodes", "2", "--json").json
    assert (played["step_rewards"], played["episode_correlation"]) == ([False] * 2, [None] * 2)
