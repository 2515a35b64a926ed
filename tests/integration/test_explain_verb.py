"""`apportion explain`: who earned the learned reward, in stored, fresh and given episodes."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from apportion.cli import display
from driver import EPISODE, Answer, Run, apportion

QUICK = ("--background", "8", "--exact-up-to", "2")  # more dimensions have edges, so orders are sampled


def _explain(run: Run, *flags: str | Path) -> dict[str, Any]:
    answer = apportion("explain", run.path, *QUICK, "--json", *flags)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


@pytest.fixture(scope="module")
def plain(greenhouse_run: Run) -> dict[str, Any]:
    return _explain(greenhouse_run)


def test_every_step_of_the_stored_episodes_is_explained(plain: dict[str, Any], greenhouse_run: Run) -> None:
    assert plain["source"] == "stored at step 2000"
    stored = greenhouse_run.read_episodes(2000)
    for lane, episodes in zip(plain["lanes"], stored, strict=True):
        for explained, episode in zip(lane["episodes"], episodes, strict=True):
            assert explained["steps"] == list(range(EPISODE))
            contributions = np.array(explained["contributions"])
            assert contributions.shape == (EPISODE, 13)
            # The checkpoint is of the same moment as the episodes, so its rewards are theirs.
            np.testing.assert_allclose(explained["redistributed"], episode["redistributed"], atol=1e-5)
            above = np.array(explained["redistributed"]) - lane["baseline"]
            np.testing.assert_allclose(contributions.sum(axis=1), above, atol=1e-5)


def test_dimensions_of_which_the_data_cannot_tell_or_that_the_graph_denies_are_named(
    plain: dict[str, Any],
) -> None:
    """What they are given may be the work of another that moves with them."""
    rows = [
        row | {"undecided": 0, "denied": int(place == 1)} for place, row in enumerate(plain["dimensions"])
    ]
    for place in (0, 2):
        rows[place]["undecided"] = 1
    rows[2] |= {"name": "load [kN]"}  # which rich would take for markup
    shown = _printed(plain | {"dimensions": rows})
    assert f"Undecided: for {rows[0]['name']}, load [kN] the data cannot tell" in shown
    assert f"Absent by the graph: {rows[1]['name']}. They are given something" in shown
    for nobody in (0, None):
        decided = [row | {"undecided": nobody, "denied": nobody} for row in rows]
        shown = _printed(plain | {"dimensions": decided})
        assert "Undecided" not in shown
        assert "Absent by the graph" not in shown


def _printed(data: dict[str, Any]) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    display.explanation(console, data)
    return console.export_text()


def test_lanes_and_steps_can_be_chosen(plain: dict[str, Any], greenhouse_run: Run) -> None:
    data = _explain(greenhouse_run, "--lane", "1", "--step", "9", "7")
    [lane] = data["lanes"]
    assert (lane["lane"], lane["seed"], lane["baseline"]) == (1, 1, plain["lanes"][1]["baseline"])
    assert [episode["steps"] for episode in lane["episodes"]] == [[9, 7], [9, 7]]
    before = plain["lanes"][1]["episodes"][0]["redistributed"]
    np.testing.assert_allclose(lane["episodes"][0]["redistributed"], [before[9], before[7]], rtol=1e-5)


def test_a_fresh_episode_is_the_one_that_eval_plays(greenhouse_run: Run) -> None:
    data = _explain(greenhouse_run, "--seed", "10000")
    assert data["source"] == "seed 10000"
    assert [len(lane["episodes"]) for lane in data["lanes"]] == [1, 1]
    assert data == _explain(greenhouse_run, "--seed", "10000")


def test_given_episodes_of_any_length(greenhouse_run: Run, tmp_path: Path) -> None:
    episode = greenhouse_run.read_episodes(2000)[0][0]
    arrays = {
        "observations": np.stack([episode["observations"]] * 2),
        "actions": np.stack([episode["actions"]] * 2),
        "lengths": np.array([EPISODE, 1]),
        "totals": np.zeros(2),
    }
    np.savez(tmp_path / "log.npz", **arrays)
    data = _explain(greenhouse_run, "--episode", tmp_path / "log.npz", "--lane", "0")
    [lane] = data["lanes"]
    assert [len(each["steps"]) for each in lane["episodes"]] == [EPISODE, 1]
    np.testing.assert_allclose(
        lane["episodes"][1]["redistributed"], lane["episodes"][0]["redistributed"][:1], rtol=1e-5
    )


def test_a_table_a_file_and_pictures(plain: dict[str, Any], greenhouse_run: Run, tmp_path: Path) -> None:
    answer = apportion("explain", greenhouse_run.path, *QUICK, "--lane", "0", "--step", "0")
    assert (answer.code, answer.err) == (0, "")
    assert "leaf mass" in answer.out
    assert "± draw" in answer.out
    signs = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype html>"}
    for ending, sign in signs.items():
        plot, out = tmp_path / f"plot.{ending}", tmp_path / "out.json"
        flags = ["--lane", "0", "--step", "0", "3", "--plot", plot, "--out", out, "--quiet"]
        assert apportion("explain", greenhouse_run.path, *QUICK, *flags) == Answer(0, "", "")
        assert plot.read_bytes().startswith(sign)
        assert json.loads(out.read_text())["step"] == plain["step"]
