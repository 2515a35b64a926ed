"""`apportion report`: where the page goes, what is said, and what is refused."""

import json
from pathlib import Path

import pytest

from apportion.runs.folder import RunFolder
from driver import apportion, refused
from synthetic_runs import Recipe, make_run

SMALL = Recipe(evaluations=2, lanes=2)


@pytest.fixture(autouse=True)
def no_cache_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "[red] run", SMALL)


def test_the_page_lies_in_the_run_and_its_path_is_said(run: RunFolder) -> None:
    said, page = apportion("report", run.path), run.path / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    assert said.out.startswith(f"{page} ({page.stat().st_size / 1e6:.1f} MB, ")
    assert "no contributions: " in said.err  # this run was never trained: it has no checkpoint


def test_several_runs_are_reported_in_the_current_folder_or_where_the_page_is_sent(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_run(tmp_path / "other", SMALL)
    monkeypatch.chdir(tmp_path)
    words = ["report", run.path, other.path, "--json", "--quiet", "--extras", "none"]
    said = apportion(*words)
    size = (tmp_path / "report.html").stat().st_size
    assert (said.json["report"], said.json["bytes"], said.err) == ("report.html", size, "")
    assert said.json["runs"] == [str(run.path), str(other.path)]
    (tmp_path / "names.json").write_text(json.dumps({"observation_names": ["a", "b", "c", "d"]}))
    assert apportion(*words, "--out", tmp_path / "new/page.html", "--names", "names.json").code == 0
    assert (tmp_path / "new" / "page.html").is_file()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent"], 1, "is not a run folder"),
        (["RUN", "--out", "."], 1, "is a folder: give --out a file name"),
        (["RUN", "--names", "absent.json"], 1, "--names takes a JSON file"),
        ([], 2, "name at least one"),
    ],
)
def test_what_cannot_be_done_is_explained(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(apportion("report", *(str(run.path) if word == "RUN" else word for word in words)), code, message)
