"""`apportion bench`: a table for people, JSON for scripts, and the page that is made from it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apportion.bench import memory, speed

from apportion import cli
from apportion.cli import bench
from scripts import load

ROOT = Path(__file__).parents[2]
PERFORMANCE = load("benchmarks/performance.py")
ROW = {
    "method": "oracle",
    "size": "Ant",
    "states": 111,
    "actions": 8,
    "lanes": 5,
    "milliseconds": 12.5,
    "milliseconds_range": [12.0, 13.0],
    "lane_updates_per_second": 400.0,
    "gflop_per_lane_update": 0.7,
    "share_of_peak": 0.5,
    "program_bytes": 2 * 10**9,
    "compile_seconds": 7.0,
}
LEFT_OUT = {
    "method": "grd (gradient)",
    "size": "Humanoid",
    "states": 376,
    "actions": 17,
    "lanes": 20,
    "gflop_per_lane_update": 77.0,
    "left_out": "one update would take about 80 s",
}
TRAINING = {"env": "HalfCheetah-v4", "method": "grd", "lanes": 1, "iterations_per_second": 0.3}


def measured(report: Any, **chosen: Any) -> Iterator[dict[str, Any]]:
    """As `speed.full` would find it on some machine."""
    report("measuring")
    taken = {"apportion_grd": [10.0, 11.0, 30.0], "torch_eager_grd": [100.0, 110.0, 300.0]}
    yield {
        "versions": {"platform": "Linux aarch64", "jax": "0.10.2", "python": "3.11.7", "devices": ["cpu"]},
        "cores": 2,
        "peak": {"float32": 1e11},
        "ratios": {"torch_eager_grd": 10.0},
        "peers": {"env": "HalfCheetah-v4", "milliseconds": taken},
        "our_step": {"gflop_per_update": 0.5, "gflop_per_second": 45.0, "share_of_peak": 0.45},
        "environment": [{"env": "Ant-v4", "lanes": 5, "workers": 1, "steps_per_second": 2500.0}],
        "training": [{**TRAINING, "lane_steps_per_second": 30.0, "lane_updates_per_second": 30.0}],
        "updates": [ROW, LEFT_OUT],
        "memory": {"lanes": memory.table(1_000_000), "peak": {"process_bytes": 3e9, "device_bytes": None}},
    }


def test_scripts_find_the_ratios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(speed, "quick", measured)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")  # no cache in the home folder
    assert cli._run(["bench", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ratios"] == {"torch_eager_grd": 10.0}
    assert err == "measuring ...\n"  # progress, apart from the result


def test_what_was_measured_before_a_stop_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(report: Any, **chosen: Any) -> Iterator[dict[str, Any]]:
        yield from measured(report)
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "full", stopped)
    out = tmp_path / "new folder" / "speed.json"
    with pytest.raises(KeyboardInterrupt):
        cli._run(["bench", "--quiet", "--out", str(out)])
    assert json.loads(out.read_text())["cores"] == 2


def test_people_get_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(speed, "full", measured)
    assert cli._run(["bench", "--quiet", "--out", str(tmp_path / "speed.json")]) == 0
    assert capsys.readouterr() == ("", "")
    assert json.loads((tmp_path / "speed.json").read_text())["cores"] == 2
    assert cli._run(["bench", "speed"]) == 0
    out = capsys.readouterr().out
    for text in ("torch_eager_grd", "10.0", "50%", "1.607", "45%"):
        assert text in out


def test_only_the_parts_that_are_asked_for_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = next(measured(lambda line: None))
    monkeypatch.setattr(speed, "_head", lambda seconds: {"cores": 2, "peak": {"float32": 1e11}})
    for module, name in ((speed.environments, "environment"), (speed.training, "training")):
        monkeypatch.setattr(module, "table", lambda *args, name=name, **more: iter(rows[name]))
    monkeypatch.setattr(speed.updates, "table", lambda *args: iter(rows["updates"]))
    monkeypatch.setattr(speed, "_compare", lambda **more: pytest.fail("nobody asked for peers"))
    words = ["bench", "--parts", "environment", "updates", "--quiet"]
    assert cli._run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["environment"], found["updates"]) == (rows["environment"], rows["updates"])
    assert not {"peers", "ratios", "training"} & found.keys()
    assert cli._run(["bench", "--parts", "training"]) == 0  # as tables
    out = capsys.readouterr().out
    assert "Trainings" in out
    assert "Environments" not in out


def test_structure_has_flags_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "run_structure", lambda flags, tell: asked.append(flags) or {"mean": 1.0})
    assert cli._run(["bench", "structure", "--quick", "--part", "held-out", "--json"]) == 0
    assert (asked[0].quick, asked[0].part) == (True, "held-out")
    assert json.loads(capsys.readouterr().out) == {"mean": 1.0}


@pytest.mark.parametrize(
    "words",
    [
        ["sped"],
        ["--methods", "gdr"],
        ["--lanes", "0"],
        ["--parts", "all"],
        ["--parts"],
        ["--quick", "structure"],
    ],
)
def test_a_wrong_command_line_gets_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["bench", *words])
    assert leaving.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


# --- The page


def test_the_page_has_what_the_results_say() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    assert page == PERFORMANCE.filled(page, ROOT / "results"), "run benchmarks/performance.py"


def test_every_table_of_the_script_is_on_the_page() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    assert set(re.findall(r"<!-- ([a-z\-0-9]+) -->\n", page)) - {"end"} == set(PERFORMANCE.TABLES)


def test_a_table_is_made_from_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "speed-cpu.json").write_text(json.dumps(next(measured(lambda line: None))))
    names = ("peers-cpu", "updates-cpu", "trainings-cpu", "environments-cpu", "memory", "growth")
    page = "".join(f"<!-- {name} -->\nold\n<!-- end -->\n" for name in names)
    made = PERFORMANCE.filled(page, tmp_path)
    assert "| PyTorch eager, GRD+SAC | 110 | 100 to 300 | 10.00 |" in made
    assert "left out: one update would take about 80 s" in made
    assert "old" not in made
    assert made.count("Not measured yet.") == 1  # growth
    assert PERFORMANCE.filled(made, tmp_path) == made
