"""Tables of recorded runs: what stands in which cell, and what is said of runs that stopped early."""

import json
from pathlib import Path
from typing import Any

from apportion.backbones import sac
from apportion.envs.make import EnvConfig
from apportion.training.settings import Config
from scripts import load

curves = load("benchmarks/curves.py")


def _recorded(method: dict[str, Any], returns: list[list[float]], discount: float = 0.99) -> dict[str, Any]:
    correlation = [[0.5 for _ in lanes] for lanes in returns]
    config = Config(EnvConfig("Hopper-v4"), backbone_config=sac.Config(discount=discount))
    return {
        "config": {**_as_recorded(config), "method": method},
        "steps": [100 * (1 + k) for k in range(len(returns))],
        "curves": {"return": returns, "reward_correlation": correlation},
    }


def _as_recorded(config: Config) -> dict[str, Any]:
    return json.loads(json.dumps(config.to_dict()))


def test_cells_and_differences() -> None:
    ours = _recorded({"name": "grd", "structure": "closed-form", "base": True}, [[1.0] * 4, [5.0, 5, 5, 5]])
    published = {"name": "grd", "structure": "gradient", "base": False}
    published = _recorded(published, [[3.0] * 4, [2.0, 2, 2, 2]])
    stopped = _recorded({"name": "rd"}, [[3.0, 3, 3, 3]])
    lines = curves.table([curves.as_run(run) for run in (ours, published, stopped)], (100, 200))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    half = "0.500 [0.500, 0.500]"
    assert cells == [
        ["Hopper-v4", "`grd`", "1 [1, 1]", half, "5 [5, 5]", half, "-"],
        ["Hopper-v4", "`grd, published`", "3 [3, 3]", half, "2 [2, 2]", half, "+3 [+3, +3]"],
        ["Hopper-v4", "`rd`", "3 [3, 3]", half, "-", "-", "-"],
    ]


def test_runs_are_told_apart_by_their_settings() -> None:
    network_alone = {"name": "grd", "structure": "closed-form", "base": False}
    runs = [_recorded(network_alone, [[1.0]]), _recorded({"name": "oracle"}, [[1.0]], discount=0.9999)]
    assert [curves.as_run(run).label for run in runs] == [
        "grd, no additive reward",
        "oracle, discount 0.9999",
    ]


def test_a_rival_is_compared_with_grd_on_the_same_backbone() -> None:
    grd = {"name": "grd", "structure": "closed-form", "base": True}
    runs = [_recorded(grd, [[1.0] * 4]), _recorded(grd, [[7.0] * 4]), _recorded({"name": "rd"}, [[3.0] * 4])]
    crossq = _as_recorded(Config(EnvConfig("Hopper-v4"), backbone="crossq"))["backbone"]
    for run in runs[1:]:
        run["config"]["backbone"] = crossq
    lines = curves.table([curves.as_run(run) for run in runs], (100,))
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["`grd`", "`grd, crossq`", "`rd, crossq`"]
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["-", "-", "+4 [+4, +4]"]


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    run = curves.as_run(_recorded({"name": "rd"}, [[1.0, 2.0], [3.0, 4.0]]))
    curves.draw([run], tmp_path / "new" / "curves.svg")
    assert "Hopper-v4" in (tmp_path / "new" / "curves.svg").read_text()
