"""What the whole-program tests share: one store of compiled programs, and one run from start to end."""

from pathlib import Path

import pytest
from sweeps import straight_run

from driver import GREENHOUSE, Run, tiny, train


@pytest.fixture(scope="session", autouse=True)
def with_what_was_compiled(compiled_once: None) -> None:
    """All of these tests train."""


@pytest.fixture(scope="session")
def greenhouse_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """GRD on the greenhouse from the first step to the last; read it, do not write into it."""
    return train(tmp_path_factory.mktemp("greenhouse") / "run", GREENHOUSE, *tiny("grd"))


@pytest.fixture(scope="session")
def gated_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What the job of sweeps.py comes to without a break; read it, do not write into it."""
    return straight_run(tmp_path_factory.mktemp("gated") / "run")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where a test's run goes."""
    return tmp_path / "run"
