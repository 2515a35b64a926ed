"""The log of a stopped and resumed run equals that of a run never stopped."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from apportion.runs.atomic import sealed
from apportion.runs.listeners import Events
from apportion.runs.logs import MetricsLog, examine
from disks import small_files


def write_steps(log: MetricsLog, *steps: int) -> None:
    for step in steps:
        log.write(step, "train", {"loss": [step / 2, step / 3]})
        log.write(step, "eval", {"return": [1.0, None]})


def test_lines_are_read_back_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.restore(b"", 0) == examine(log.path).entries == []
    values = {
        "a": jnp.array([0.5, jnp.nan]),
        "b": np.float32(2),
        "c": 3,
        "d": float("nan"),
        "e": [np.inf, 1.0],
    }
    log.write(10, "train", values)
    wanted = {"a": [0.5, None], "b": 2.0, "c": 3, "d": None, "e": [None, 1.0]}
    assert examine(log.path).entries == [{"step": 10, "kind": "train", **wanted}]
    json.loads(log.path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("torn", [b"", b'{"step": 4', b"\x00\x00\x00", b'{"step": 30, "kind": "tra\xc3'])
def test_a_resumed_log_equals_one_never_stopped(tmp_path: Path, torn: bytes) -> None:
    straight, resumed = MetricsLog(tmp_path / "straight"), MetricsLog(tmp_path / "resumed")
    write_steps(straight, 10, 20, 30, 40)
    write_steps(resumed, 10, 20)
    saved = resumed.content()
    write_steps(resumed, 30)
    with resumed.path.open("ab") as file:
        file.write(torn)
    assert [entry["step"] for entry in examine(resumed.path).entries] == [10, 10, 20, 20, 30, 30]
    assert resumed.restore(saved, 20) == []
    write_steps(resumed, 30, 40)
    assert resumed.path.read_bytes() == straight.path.read_bytes()


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    write_steps(log, 10)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.rstrip(b"\n"))
    assert log.restore(whole, 10) == []
    assert log.path.read_bytes() == whole


def test_an_evaluation_without_a_word_of_success_has_none_where_others_speak_of_it(tmp_path: Path) -> None:
    """Some environments report success only when there is one."""
    log = MetricsLog(tmp_path / "metrics.jsonl")
    write_steps(log, 10)
    assert "success" not in examine(log.path).entries[-1]
    log.write(20, "eval", {"return": [1.0, None], "success": [0.5, None]})
    write_steps(log, 30)
    rates = [entry["success"] for entry in examine(log.path).entries if entry["kind"] == "eval"]
    assert rates == [[0.0, None], [0.5, None], [0.0, None]]


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_lines_that_are_gone_before_a_resume_come_back_from_the_checkpoint(tmp_path: Path, kept: int) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    write_steps(log, 10, 20, 30)
    whole = log.content()
    log.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
    said = f"{log.path} had {kept} of 6 lines up to step 30: restored from the checkpoint"
    assert log.restore(whole, 30) == [said]
    assert (log.content(), log.lines) == (whole, 6)


def _line(**changes: Any) -> bytes:
    return json.dumps({"step": 2, "kind": "train", "loss": [1.0, 2.0]} | changes).encode()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"rubbish", "Expecting value"),
        (b"\xff\xfe", "'utf-8' codec"),
        (b"[1, 2]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"step": 2, "step": 3, "kind": "train"}', "'step' is given twice"),
        (_line(step=-1), "step=-1 is negative"),
        (_line(step="2"), "step='2' must be a whole number"),
        (_line(step=10**400), "1000000000"),
        (_line(kind="training"), "kind='training' must be one of"),
        (_line(loss=float("nan")), "NaN is no number"),
        (_line(loss={"deep": 1}), "loss holds what is no number"),
        (_line(loss=[1.0]), "loss has 1 values for 2 lanes"),
        (_line(loss=1.0), "loss has 1 values for 2 lanes"),
        (_line(seconds=[1.0, 2.0]), "seconds=[1.0, 2.0] must be a finite number"),
        (_line(kind="eval"), "an evaluation without returns"),
        (
            json.dumps(sealed({"step": 2, "kind": "train", "loss": [1, 2]})).replace("2]", "3]").encode(),
            "its c",
        ),
    ],
)
def test_a_damaged_line_is_left_out_and_named(tmp_path: Path, bad: bytes, reason: str) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(1, "train", {"loss": [0.5, 0.25]})
    log.path.write_bytes(log.content() + bad + b"\n" + _line(step=3) + b"\n")
    found = examine(log.path, lanes=2)
    assert [entry["step"] for entry in found.entries] == [1, 3]
    (note,) = found.notes
    assert note.startswith(f"{log.path}, line 2, is left out: {reason}")
    assert "\n" not in note


def test_a_line_that_finds_no_room_leaves_no_half_behind(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(1, "train", {"loss": [0.5, 0.25]})
    whole = log.content()
    with small_files(len(whole) + 20), pytest.raises(OSError, match="File too large"):
        log.write(2, "train", {"loss": [0.5, 0.25]})
    assert (log.content(), log.lines) == (whole, 1)


def events(path: Path) -> list[Event]:
    """The events of one file. A record is the event's length (8 bytes) and checksum (4), itself, 4 more."""
    content, found = path.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        found.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return found


def scalars(path: Path) -> dict[tuple[str, int], float]:
    return {(v.tag, e.step): v.simple_value for e in events(path) for v in e.summary.value}


def test_events_hold_the_mean_and_each_lane(tmp_path: Path) -> None:
    log = Events(tmp_path)
    log({"step": 10, "kind": "train", "loss": [1.0, 3.0], "speed": 5, "one": [2.0]})
    log({"step": 20, "kind": "eval", "r": [None, 2.0], "unknown": None, "stored": ["edges"]})
    (file,) = tmp_path.iterdir()
    assert scalars(file) == {
        ("train/loss", 10): 2.0,
        ("train/loss/lane0", 10): 1.0,
        ("train/loss/lane1", 10): 3.0,
        ("train/speed", 10): 5.0,
        ("train/one", 10): 2.0,
        ("eval/r", 20): 2.0,
        ("eval/r/lane1", 20): 2.0,
    }


def test_a_quick_resume_purges_later_steps_and_keeps_the_first_file(tmp_path: Path) -> None:
    for resumed_at in (None, 20, 20):
        Events(tmp_path, resumed_at)({"step": 30, "kind": "train", "loss": 1.0})
    files = sorted(tmp_path.iterdir())
    assert [len(scalars(file)) for file in files] == [1, 1, 1]
    starts = [[e.step for e in events(file) if e.HasField("session_log")] for file in files]
    assert starts == [[], [21], [21]]
