"""When memory runs out: one line, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import GREENHOUSE, apportion, remarks, tiny

from apportion.core.files import free_bytes
from apportion.training import loop

pytestmark = pytest.mark.slow

FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7.05GiB"


def test_a_replay_that_does_not_fit_is_told_with_its_size_and_what_to_lower(out: Path) -> None:
    """Before it is allocated: more than this machine has, but not more than its system promises."""
    steps = free_bytes() // 20  # of at least 100 bytes each
    answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), "--replay-steps", str(steps))
    (line,) = remarks(answer.err)
    assert answer.code == 1
    assert line.startswith(f"error: not enough memory: replays of {steps:,} steps for 2 seeds take")
    assert line.endswith("GB are free. Lower --replay-steps or --seeds")
    assert not out.exists()


def test_a_replay_without_measure_is_refused(out: Path) -> None:
    answer = apportion("train", GREENHOUSE, "--out", out, "--replay-steps", "1" + 20 * "0")
    assert remarks(answer.err) == [f"error: replay_steps={10**20} must be at most 1,000,000,000,000,000"]


def test_a_resume_looks_for_room_too(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), "--quiet").code == 0
    monkeypatch.setattr(loop, "free_bytes", lambda: 1000)
    answer = apportion("resume", out, "--steps", "10000")
    assert answer.code == 1
    assert "replays of 1,800 steps for 2 seeds take 0.0 GB, and 0.0 GB are free" in remarks(answer.err)[-1]


def _breaking_down(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """After the checkpoint of step 1,000."""
    online = loop.online

    def some(*arguments: Any) -> Iterator[loop.Snapshot]:
        for snapshot in online(*arguments):
            if snapshot.step > 1200:
                raise RuntimeError(message)
            yield snapshot

    monkeypatch.setattr(loop, "online", some)


def test_what_is_saved_is_said_and_goes_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _breaking_down(patch, FULL)
        answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"))
    (line,) = remarks(answer.err)
    assert answer.code == 1
    assert line.startswith("error: no memory is left on cpu: replays of 1,800 steps for 2 seeds take 0.0 GB")
    assert line.endswith(f"`apportion resume {out}` goes on from step 1,000")
    assert apportion("resume", out, "--quiet").code == 0


def test_other_errors_of_programs_are_not_taken_for_it(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _breaking_down(monkeypatch, "INTERNAL: a fault of the device")
    with pytest.raises(RuntimeError, match="a fault of the device"):
        apportion("train", GREENHOUSE, "--out", out, *tiny("observed"))
