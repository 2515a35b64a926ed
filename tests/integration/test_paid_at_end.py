"""An environment that pays only at the end of its own accord: nothing pretends to know its steps' rewards."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import Run, apportion, remarks, tiny

from apportion.runs import logs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["rd", "observed", "oracle"])
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


def test_the_report_says_paid_and_has_no_correlation(late: tuple[Run, str]) -> None:
    run, _ = late
    assert apportion("report", run.path, "--quiet").code == 0
    [data] = _page(run.path / "report.html")["runs"]
    assert data["step_rewards"] is False
    assert data["scores"]["reward_correlation"]["iqm"] is None
    assert data["scores"]["return_error"]["iqm"] is not None
    shown = [metric["name"] for metric in data["curves"]["metrics"]]
    assert shown[:2] == ["return", "return_error"]
    assert "reward_correlation" not in shown


def _page(path: Path) -> dict[str, Any]:
    """The data inside the page."""
    found = re.search(r'id="data">([^<]*)<', path.read_text("utf-8"))
    assert found is not None
    return dict(json.loads(gzip.decompress(base64.b64decode(found[1]))))
