"""It learns: the greenhouse in seconds with the true reward, and the demo tells its story."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from driver import GREENHOUSE, Run, tiny, train

from apportion.runs import choosing
from apportion.runs.summary import summarise
from apportion.training.settings import Config, Schedule
from scripts import load


def test_sac_learns_from_the_true_reward(out: Path) -> None:
    """Random actions earn 6 and the expert 33; this came to 28 to 30 over seeds 0 to 2."""
    flags = tiny("oracle", "--seeds", "1", "--steps", "6000", "--warmup-steps", "1000", "--workers", "0")
    flags += ["--updates-per-iteration", "100", "--evaluate-every", "2000", "--evaluation-episodes", "20"]
    flags += ["--replay-steps", "10000", "--backbone.hidden", "32", "32", "--backbone.batch-size", "64"]
    flags += ["--backbone.learning-rate", "3e-3", "--backbone.discount", "0.95"]
    (returns,) = summarise(train(out, GREENHOUSE, *flags))["returns"]
    assert returns[-1] > 20


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """examples/demo.py, with the sizes of `tiny`."""
    module = load("examples/demo.py")
    original = choosing.preset

    def small(*arguments: str) -> Config:
        config = original(*arguments)
        schedule = Schedule(1000, 200, 3, warmup_steps=400, evaluation_episodes=3, replay_steps=1500)
        backbone = replace(config.backbone_config, hidden=(8, 8), batch_size=16)
        method = config.method_config
        if config.method == "grd":
            method = replace(
                method,
                structure="gradient",
                hidden=(8, 8),
                segments=4,
                initial_edge_logit=1.0,
                edge_learning_rate=0.1,
            )
        return replace(config, schedule=schedule, backbone_config=backbone, method_config=method)

    monkeypatch.setattr(choosing, "preset", small)
    return module


def test_the_demo_compares_the_three_methods(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    demo.main(demo.Demo(seeds=2, steps=1200, out=tmp_path / "demo", quiet=True))
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    comparison, edges = cells[:3], cells[3:]
    assert [row[0] for row in comparison] == ["grd", "observed", "oracle"]
    assert comparison[2][2] == "100%"
    assert comparison[2][3] in ("1", "1.000")
    names = Run(tmp_path / "demo" / "grd").read_spec()
    assert [row[0] for row in edges] == [*names.observation_names, *names.action_names]
    assert [row[3] for row in edges].count("yes") == 6
    assert all(0 <= float(row[1]) <= 1 for row in edges)
    assert any("F1 of all edges: state→reward" in line for line in lines)
    assert f"apportion explain {tmp_path / 'demo' / 'grd'}" in lines[-2]
    assert f"Open {tmp_path / 'demo' / 'report.html'}" in lines[-1]
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000  # Plotly is inside
    for method in demo.METHODS:
        assert np.isfinite(summarise(Run(tmp_path / "demo" / method))["final_return"]).all()
