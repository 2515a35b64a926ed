"""Whoever reads our output may leave early, or not be there at all: what was asked for is done anyway."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def _shell(script: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """A line of shell, in which "$@" is our command with these words."""
    ours = [sys.executable, "-m", "apportion", *map(str, words)]
    command = ["bash", "-o", "pipefail", "-c", script, "bash", *ours]
    return subprocess.run(command, capture_output=True, text=True, check=False)


NO_READER = ('"$@" >&-', '"$@" | head -c 1', '"$@" >/dev/null 2>&-')


@pytest.mark.parametrize(
    ("script", "words"),
    [
        *((script, ["list", "methods"]) for script in NO_READER),
        (NO_READER[1], ["list", "methods", "--json"]),
        *((script, ["--help"]) for script in NO_READER),
    ],
)
def test_what_is_printed_may_find_no_reader(script: str, words: list[str]) -> None:
    found = _shell(script, *words)
    assert found.returncode == 0
    assert found.stderr == ""
