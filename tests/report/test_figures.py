"""The paper's figures from run folders of every kind, as files that open."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from apportion.core.config import UserError
from apportion.report.figures import check_plot, label_runs, plot_credit, write_figures
from synthetic_runs import HOSTILE, Recipe, make_run

SIGNS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def noise_file(path: Path, run: Path, std: float, returns: list[float | None]) -> Path:
    noise = {"std": std, "dims": []} if std else None
    path.write_text(json.dumps({"run": str(run), "noise": noise, "returns": returns}))
    return path


@pytest.mark.parametrize("format", SIGNS)
def test_all_four_kinds_of_figures(tmp_path: Path, format: str) -> None:
    runs = [make_run(tmp_path / name, Recipe(method=name)) for name in ("grd", "rd")]
    results = [
        noise_file(tmp_path / f"{run.path.name}-{std}.json", run.path, std, [10 - std, 9.0, 8.0])
        for run in runs
        for std in (1.0, 0.0)
    ]
    files = write_figures(runs, tmp_path / "new" / "figures", format, results)
    names = ["learning-curves", "structure-grd", "rewards-grd", "structure-rd", "rewards-rd", "robustness"]
    assert [file.name for file in files] == [f"{name}.{format}" for name in names]
    for file in files:
        assert file.read_bytes().startswith(SIGNS[format])


def test_the_same_runs_give_the_same_files_each_under_a_name_of_its_own(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / parent / "run", Recipe()) for parent in ("a", "b")]
    first, second = (write_figures(runs, tmp_path / name, "svg") for name in ("first", "second"))
    assert len(set(first)) == 5
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(lanes=1, evaluations=1, length=1),
        Recipe(nan_lanes=(0,)),
        Recipe(nan_lanes=(0, 1, 2)),
        Recipe(states=376, actions=17, lanes=1, evaluations=2, truth=False),
        Recipe(names=(*HOSTILE, "$\\frac{1}{0}$ 温度")),
    ],
    ids=["one of each", "a NaN lane", "NaN only", "wide", "hostile names"],
)
def test_runs_of_every_kind(tmp_path: Path, recipe: Recipe) -> None:
    files = write_figures([make_run(tmp_path / "run", recipe)], tmp_path / "figures", "svg")
    assert [file.name for file in files] == ["learning-curves.svg", "structure-grd.svg", "rewards-grd.svg"]


def test_only_what_there_is_data_for(tmp_path: Path) -> None:
    graphless = make_run(tmp_path / "rd", Recipe(method="rd", graph=False, episode_snapshots=1))
    assert [file.stem for file in write_figures([graphless], tmp_path / "a", "svg")] == [
        "learning-curves",
        "rewards-rd",
    ]
    young = make_run(tmp_path / "young", Recipe(evaluations=0))
    assert write_figures([young], tmp_path / "b", "svg") == []


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    def labels(*recipes: Recipe) -> list[str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return label_runs([make_run(folder / f"r{i}", r) for i, r in enumerate(recipes)])

    assert labels(Recipe(method="grd"), Recipe(method="rd")) == ["grd", "rd"]
    assert labels(Recipe(), Recipe()) == ["grd · r0", "grd · r1"]
    assert labels(Recipe(), Recipe(env="Other-v0")) == ["toy/Toy-v0 · grd", "Other-v0 · grd"]


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe())
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "other.json").write_text("[1]")
    messages = {"missing": "no file", "text": "not JSON", "other": "no result of an evaluation"}
    for name, message in messages.items():
        with pytest.raises(UserError, match=message):
            write_figures([run], tmp_path, "svg", [tmp_path / f"{name}.json"])
    with pytest.raises(UserError, match="no figures as 'gif'"):
        write_figures([run], tmp_path, "gif")


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it could not be imported
    fix = re.escape("pip install 'apportion[figures]'")
    with pytest.raises(UserError, match=fix):
        write_figures([make_run(tmp_path / "run", Recipe())], tmp_path, "svg")
    with pytest.raises(UserError, match=fix):
        check_plot(tmp_path / "plot.svg")


# --- The picture of `apportion explain`


def explained(**changes: Any) -> dict[str, Any]:
    rows = [
        {"name": name, "index": index, "mean": 0.1, "mean_absolute": 0.2, "between_lanes": None}
        for index, name in enumerate((*HOSTILE, "$x"))
    ]
    episode = {"steps": [0, 1], "contributions": [[0.1, 0.2, 0.3, None], [0.0, 0.1, -0.2, 0.3]]}
    data = {"method": "grd", "env": "<b>toy</b>", "step": 10, "dimensions": rows}
    return {**data, "lanes": [{"seed": 0, "episodes": [episode]}], **changes}


def test_hostile_names_stay_text_and_no_numbers_are_drawn_empty(tmp_path: Path) -> None:
    page = plot_credit(explained(), tmp_path / "plot.html").read_text()
    assert not any(markup in page for markup in ("<b>toy", "<script", "<img"))
    nothing = dict.fromkeys(("mean", "mean_absolute", "between_lanes"))
    episode = {"steps": [0], "contributions": [[None]]}
    data = {
        "dimensions": [{"name": "x", "index": 0, **nothing}],
        "lanes": [{"seed": 0, "episodes": [episode]}],
    }
    assert plot_credit(explained(**data), tmp_path / "plot.png").read_bytes().startswith(SIGNS["png"])
