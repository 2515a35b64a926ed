"""When memory runs out: one line, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import GREENHOUSE, apportion, remarks, tiny

from apportion.training import loop

FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7.05GiB"


def test_a_replay_that_cannot_be_allocated_is_told_with_its_size_and_what_to_lower(out: Path) -> None:
    flags = [*tiny("observed"), "--replay-steps", str(10**12)]
    answer = apportion("train", GREENHOUSE, "--out", out, *flags)
    (line,) = remarks(answer.err)
    assert answer.code == 1
    assert "replays of 1,000,000,000,000 steps for 2 seeds take" in line
    assert "Lower --replay-steps or --seeds" in line
    assert line.endswith("Nothing is saved yet")


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
