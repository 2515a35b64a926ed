"""Tests that train share a store of compiled programs."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def with_what_was_compiled(compiled_once: None) -> None:
    """Two trainings that differ in their environment's units are the same programs."""
