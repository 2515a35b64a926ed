"""`apportion identify FILE.npz`, and the files it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from greenhouse_log import collect

from apportion.cli import main
from apportion.envs.make import EnvConfig


def arrays(episodes: int = 200) -> dict[str, Any]:
    spec, (observations, actions, totals) = collect(EnvConfig("apportion/Greenhouse-v0"), episodes)
    return {
        "observations": np.stack(observations),
        "actions": np.stack(actions),
        "lengths": np.full(episodes, 40),
        "totals": totals,
        "observation_names": np.array(spec.observation_names),
        "action_names": np.array(spec.action_names),
    }


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(["identify", *words])
    return int(leaving.value.code or 0)


def test_json_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "log.npz", **arrays())
    assert run(str(tmp_path / "log.npz"), "--json", "--out", str(tmp_path / "graph.json")) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "graph.json").read_text())
    assert data["graph"]["state_to_reward"] == [True] * 5 + [False] * 5
    assert {"graph", "strength", "confidence", "certificate"} <= set(data)
    assert data["verdict"]["state_to_reward"] == ["present"] * 5 + ["absent"] * 5
    assert np.shape(data["verdict"]["action_to_state"]) == (3, 10)
    assert data["groups"] == []
    assert np.shape(data["graph"]["state_to_state"]) == (10, 10)
    assert run(str(tmp_path / "log.npz")) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("leaf mass", "present", "absent", "as a main effect or in a pair"))


def test_the_reason_of_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "log.npz", **arrays())
    names = arrays(1)["observation_names"]
    said = {}
    for name in (names[0], names[9]):
        assert run(str(tmp_path / "log.npz"), "--why", name) == 0
        said[name] = " ".join(capsys.readouterr().out.split())
    first, last = said.values()
    assert f"{names[0]}: present, with the probability 1.000." in first
    assert "times as likely with it than without" in first
    assert re.search(r"Share of the outcomes' variance: [\d.]+% \(90% interval [\d.]+% to [\d.]+%\)", first)
    assert "Best swap: none" in first
    assert f"{names[9]}: absent" in last
    assert "times as likely without it than with it" in last
    assert "It is worth 1.00% or more with probability 0.000." in last
    assert run(str(tmp_path / "log.npz"), "--why", "nobody") == 1
    assert "--why: 'nobody' is none of" in capsys.readouterr().err


def test_stand_ins_are_shown_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = arrays(160)
    copy = -2.0 * log["observations"][:, :, :1]
    names = np.array([*log["observation_names"], "spare gauge"])
    log |= {"observations": np.concatenate([log["observations"], copy], axis=2), "observation_names": names}
    np.savez(tmp_path / "log.npz", **log)
    assert run(str(tmp_path / "log.npz"), "--negligible", "0.02") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"cannot tell which: {names[0]}, spare gauge" in shown
    assert "undecided" in shown
    assert "less than 0.02 of the totals' variance" in shown
    assert run(str(tmp_path / "log.npz"), "--why", names[0], "--json") == 0
    reason = json.loads(capsys.readouterr().out)["reasons"][0]
    assert reason["evidence"] > 3
    assert reason["interval"][0] < reason["share"] < reason["interval"][1]
    assert run(str(tmp_path / "log.npz"), "--negligible", "1.5") == 2
    assert "between 0 and 1" in capsys.readouterr().err


def broken(**changes: Any) -> dict[str, Any]:
    return {name: array for name, array in {**arrays(3), **changes}.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"totals": None}, "no array 'totals'"),
        ({"actions": np.zeros((3, 39, 3))}, "one more observation than actions"),
        ({"lengths": np.array([40, 41, 40])}, "from 1 to 40"),
        ({"lengths": np.array([40.0, 40.0, 40.0])}, "whole numbers"),
        ({"totals": np.zeros(4)}, "one entry for each of the 3 episodes"),
        ({"observation_names": np.array(["a"])}, "must be 10 names"),
        ({"totals": np.array([1.0, np.nan, 2.0])}, "NaN"),
    ],
)
def test_bad_arrays_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "log.npz", **broken(**changes))
    assert run(str(tmp_path / "log.npz")) == 1
    assert message in one_error(capsys)


def test_bad_files_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.npz").touch()
    (tmp_path / "text.npz").write_text("hello")
    for name in ("missing.npz", "empty.npz", "text.npz"):
        assert run(str(tmp_path / name)) == 1
        assert name in one_error(capsys)


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    return errors[0]
