"""JSON Lines: a line for each episode, with a list of steps; vectors are one input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_data import SMALL
from scipy.special import expit

import apportion
from apportion.core.config import UserError
from apportion.data.columns import Columns
from apportion.data.reading import read_log


def traces(count: int = 200, width: int = 4) -> list[dict[str, Any]]:
    """The tool and one direction of the vector matter; a field is missing now and then."""
    rng, lines = np.random.default_rng(0), []
    for number in range(count):
        turns = []
        for _ in range(rng.integers(2, 6)):
            tool, vector = str(rng.choice(["run", "réad"])), rng.normal(size=width).tolist()
            turns.append({"tool": tool, "usage": {"tokens": int(rng.integers(9))}, "embedding": vector})
            turns[-1] |= {"extra": 1.0, "reward": 0.5} if rng.random() < 0.5 else {}
        odds = sum((turn["tool"] == "run") + 2 * turn["embedding"][0] for turn in turns) - 2
        success = bool(rng.random() < expit(odds))
        lines.append({"id": f"t{number}", "tags": ["a"], "success": success, "turns": turns})
    return lines


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


COLUMNS = Columns(outcome="success", without="id,reward")


def test_fields_are_columns_and_a_vector_is_one_input(tmp_path: Path) -> None:
    log = read_log(str(written(tmp_path / "log.jsonl", traces())), COLUMNS).log
    names = ("tool", "usage.tokens", "extra", *(f"embedding[{place}]" for place in range(4)))
    assert log.observation_names == (*names, "extra missing")
    assert log.inputs == ("tool", "usage.tokens", "extra", *["embedding"] * 4, "extra missing")
    assert log.answers == (0.0, 1.0)
    assert any("'tags' is a list" in note for note in log.notes)
    first = traces()[0]["turns"]
    np.testing.assert_allclose(log.observations[0][:, 3:7], [turn["embedding"] for turn in first], rtol=1e-6)


def test_lines_come_back_with_a_reward_for_each_step(tmp_path: Path) -> None:
    lines = traces()
    data = written(tmp_path / "log.jsonl", lines)
    run = apportion.fit(
        data, outcome="success", without="id,reward", out=tmp_path / "run", settings=SMALL, quiet=True
    )
    apportion.relabel(run, data, tmp_path / "new.jsonl", credit=True)
    exact = apportion.relabel(run, data, tmp_path / "exact.jsonl", exact=True)
    texts = (tmp_path / "new.jsonl").read_text().splitlines()
    for before, text in zip(lines, texts, strict=True):
        after = json.loads(text)
        assert after["step_rewards"] == [turn["reward"] for turn in after["turns"]]
        for old, turn in zip(before["turns"], after["turns"], strict=True):
            assert turn.get("paid_reward") == old.get("reward")
            assert "reward" in old or json.dumps(old)[:-1] in text  # to the letter
            assert turn["embedding"] == old["embedding"]
            assert turn["reward_low"] <= turn["reward"] <= turn["reward_high"]
            assert "credit_embedding" in turn
            assert "credit_embedding[0]" not in turn
    rewards = [reward for text in texts for reward in json.loads(text)["step_rewards"]]
    truth = [(turn["tool"] == "run") + 2 * turn["embedding"][0] for line in lines for turn in line["turns"]]
    assert np.corrcoef(rewards, truth)[0, 1] > 0.9
    for line in map(json.loads, Path(exact).read_text().splitlines()):
        assert sum(line["step_rewards"]) == pytest.approx(float(line["success"]))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no episode"),
        ([[1]], "line 1 is no object"),
        ([{"y": 1}], "no field is a list of objects"),
        ([{"y": 1, "a": [{"s": 1}], "b": [{"s": 1}]}], "2 fields are lists of objects"),
        ([{"y": 1, "a": [{"s": 1}]}, {"y": 1, "a": []}], "line 2: 'a' is no list of steps"),
        ([{"y": 1, "a": [{"s": [1.0]}, {"s": [1.0, 2.0]}]}], "2 numbers, and 1 before"),
        ([{"y": 1, "a": [{"s": "x"}, {"s": 2}]}], "sometimes a text"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_log(str(written(tmp_path / "log.jsonl", lines)), Columns())


def test_no_json_is_named_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", traces(2))
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(UserError, match="line 3 is no JSON"):
        read_log(str(path), COLUMNS)
