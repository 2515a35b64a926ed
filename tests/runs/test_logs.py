"""The log of a stopped and resumed run equals that of a run never stopped."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from apportion.core.errors import UserError
from apportion.runs.logs import Events, MetricsLog, read


def write_steps(log: MetricsLog, *steps: int) -> None:
    for step in steps:
        log.write(step, "train", {"loss": [step / 2, step / 3]})
        log.write(step, "eval", {"return": [1.0, None]})


def test_lines_are_read_back(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(10, "train", {"loss": jnp.array([0.5, 0.25]), "speed": np.float32(2), "count": 3})
    assert read(log.path) == [{"step": 10, "kind": "train", "loss": [0.5, 0.25], "speed": 2.0, "count": 3}]


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(1, "eval", {"a": float("nan"), "b": [np.inf, 1.0], "c": jnp.array([jnp.nan, 2.0])})
    entry = json.loads(log.path.read_text(), parse_constant=pytest.fail)
    assert entry == {"step": 1, "kind": "eval", "a": None, "b": [None, 1.0], "c": [None, 2.0]}


@pytest.mark.parametrize("torn", [b"", b'{"step": 4', b"\x00\x00\x00", b'{"step": 30, "kind": "tra\xc3'])
def test_a_resumed_log_equals_one_never_stopped(tmp_path: Path, torn: bytes) -> None:
    straight, resumed = MetricsLog(tmp_path / "straight"), MetricsLog(tmp_path / "resumed")
    write_steps(straight, 10, 20, 30, 40)
    write_steps(resumed, 10, 20, 30)
    with resumed.path.open("ab") as file:
        file.write(torn)
    assert [entry["step"] for entry in read(resumed.path)] == [10, 10, 20, 20, 30, 30]
    resumed.truncate_after(20)
    write_steps(resumed, 30, 40)
    assert resumed.path.read_bytes() == straight.path.read_bytes()


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    write_steps(log, 10)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.rstrip(b"\n"))
    log.truncate_after(10)
    assert log.path.read_bytes() == whole


def test_no_file_yet(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "absent").truncate_after(0)
    assert read(tmp_path / "absent") == []


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2, is not JSON"):
        read(path)


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
    with Events(tmp_path) as log:
        log.write(10, "train", {"loss": [1.0, 3.0], "speed": 5, "one": jnp.array([2.0])})
        log.write(20, "eval", {"r": [None, 2.0], "nan": float("nan"), "unknown": None})
        log.flush()
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
        with Events(tmp_path, resumed_at) as log:
            log.write(30, "train", {"loss": 1.0})
    files = sorted(tmp_path.iterdir())
    assert [len(scalars(file)) for file in files] == [1, 1, 1]
    starts = [[e.step for e in events(file) if e.HasField("session_log")] for file in files]
    assert starts == [[], [21], [21]]
