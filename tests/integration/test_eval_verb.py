"""`apportion eval`: fresh episodes of a run's policies, with noise on what they see where asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.cli import display
from driver import EPISODE, Answer, Run, apportion

NAME, NUMBER = "leaf mass", "4"  # the same dimension


def _eval(run: Run, *flags: str | Path) -> dict[str, Any]:
    answer = apportion("eval", run.path, "--episodes", "3", "--json", *flags)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


@pytest.fixture(scope="module")
def plain(greenhouse_run: Run) -> dict[str, Any]:
    return _eval(greenhouse_run)


def test_scores_of_each_lane_are_said_by_the_seed_and_noise_of_nothing_is_none(
    plain: dict[str, Any], greenhouse_run: Run
) -> None:
    assert (plain["step"], plain["episodes"], plain["seed"]) == (2000, 3, 10_000)
    assert (plain["training_seeds"], plain["noise"], plain["skipped"]) == ([0, 1], None, [])
    assert plain["lengths"] == [EPISODE, EPISODE]
    for score in ("returns", "return_std", "episode_correlation", "return_error"):
        assert len(plain[score]) == 2
        assert all(isinstance(value, float) for value in plain[score])
    assert _eval(greenhouse_run) == plain
    assert _eval(greenhouse_run, "--noise", "0") == plain
    assert _eval(greenhouse_run, "--seed", "7")["returns"] != plain["returns"]


def test_noise_on_all_dimensions_or_on_some_by_name_or_number(
    plain: dict[str, Any], greenhouse_run: Run
) -> None:
    everywhere = _eval(greenhouse_run, "--noise", "0.5")
    by_name = _eval(greenhouse_run, "--noise", "0.5", "--noise-dims", NAME)
    by_number = _eval(greenhouse_run, "--noise", "0.5", "--noise-dims", NUMBER)
    assert by_name == by_number
    assert by_name["noise"] == {"std": 0.5, "dims": [4]}
    results = (plain, everywhere, by_name, _eval(greenhouse_run, "--noise", "0.5", "--noise-dims", "0", NAME))
    assert len({tuple(result["returns"]) for result in results}) == 4


def test_the_result_also_goes_to_a_file_or_at_least_out(
    plain: dict[str, Any], greenhouse_run: Run, tmp_path: Path
) -> None:
    file, words = tmp_path / "result.json", ("eval", greenhouse_run.path, "--episodes", "3", "--out")
    assert apportion(*words, file, "--quiet") == Answer(0, "", "")
    assert json.loads(file.read_text()) == plain
    answer = apportion(*words, "/dev/null/result.json", "--json")
    assert (answer.code, answer.json, answer.err) == (1, plain, "error: File exists: /dev/null\n")


def test_the_first_episode_can_be_filmed(greenhouse_run: Run, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    film = tmp_path / "film.mp4"
    answer = apportion("eval", greenhouse_run.path, "--episodes", "1", "--video", film, "--quiet")
    assert answer == Answer(0, "", "")
    assert film.read_bytes()[4:8] == b"ftyp"  # how every mp4 begins


def test_a_table_for_people(greenhouse_run: Run) -> None:
    answer = apportion("eval", greenhouse_run.path, "--episodes", "2")
    assert (answer.code, answer.err) == (0, "")
    assert "2 episodes at step 2,000" in answer.out
    assert "return error" in answer.out


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.4e-5, "1.40e-05"), (0.0, "0.000"), (31.02, "31.0"), (float("nan"), "-"), (None, "-")],
)
def test_a_tiny_return_is_not_shown_as_nothing(value: float | None, shown: str) -> None:
    assert display.amount(value) == shown
