"""`apportion report`: where the page goes, what is said, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from apportion import cli
from apportion.core.config import UserError
from apportion.runs.folder import RunFolder
from synthetic_runs import Recipe, make_run

SMALL = Recipe(evaluations=2, lanes=2)


@pytest.fixture(autouse=True)
def no_cache_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "[red] run", SMALL)


def test_the_page_lies_in_the_run_and_its_path_is_said(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["report", str(run.path)]) == 0
    page = run.path / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    said = capsys.readouterr()
    assert said.out.startswith(f"{page} ({page.stat().st_size / 1e6:.1f} MB, ")
    assert "no contributions: " in said.err  # this run was never trained: it has no checkpoint


def test_several_runs_are_reported_in_the_current_folder_or_where_the_page_is_sent(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path / "other", SMALL)
    monkeypatch.chdir(tmp_path)
    words = ["report", str(run.path), str(other.path), "--json", "--quiet", "--extras", "none"]
    assert cli._run(words) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert data["report"] == "report.html"
    assert data["bytes"] == (tmp_path / "report.html").stat().st_size
    assert data["runs"] == [str(run.path), str(other.path)]
    assert said.err == ""
    (tmp_path / "names.json").write_text(json.dumps({"observation_names": ["a", "b", "c", "d"]}))
    assert cli._run([*words, "--out", str(tmp_path / "new/page.html"), "--names", "names.json"]) == 0
    assert (tmp_path / "new" / "page.html").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "absent"}, "is not a run folder"),
        ({"--out": "."}, "is a folder: give --out a file name"),
        ({"--names": "absent.json"}, "--names takes a JSON file"),
    ],
)
def test_what_cannot_be_done_is_explained(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = change.pop("run", str(run.path))
    with pytest.raises(UserError, match=message):
        cli._run(["report", path, *(word for pair in change.items() for word in pair)])
    with pytest.raises(UserError, match="name at least one") as caught:
        cli._run(["report"])
    assert caught.value.usage
