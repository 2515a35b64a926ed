"""What tests of logged episodes share: one run that was fitted to a table."""

from pathlib import Path

import logged_data
import pytest

import apportion


@pytest.fixture(scope="session", autouse=True)
def with_what_was_compiled(compiled_once: None) -> None:
    """To relabel with a run is the same programs each time."""


@pytest.fixture(scope="session")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV with outcomes only."""
    return logged_data.write_csv(
        tmp_path_factory.mktemp("logged") / "log.csv", logged_data.table(logged_data.episodes())
    )


@pytest.fixture(scope="session")
def fitted(table_file: Path) -> apportion.Run:
    """GRD in two lanes, fitted to it; read it, do not write into it."""
    out = table_file.parent / "run"
    return apportion.fit(table_file, out=out, seeds=2, settings=logged_data.SMALL, quiet=True)
