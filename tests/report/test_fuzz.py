"""Whatever happens to a file or a command line, the user gets the same answer, a word about it, or one line
of error. `make fuzz` does the same at length, with every command."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scripts
from apportion.core.config import UserError, conform, parse_json
from apportion.data.npz import read_npz
from apportion.runs import checkpoint
from apportion.runs.atomic import place
from apportion.runs.folder import RunFolder
from apportion.runs.summary import summarise
from synthetic_runs import Recipe, make_run

fuzz = scripts.load("benchmarks/fuzz.py")

seeds = st.integers(0, 2**32)


def in_one_line(error: Exception, start: str = "") -> None:
    assert str(error).startswith(start)
    assert "\n" not in str(error)


def _with_outside(root: Path) -> Path:
    """A folder with a file that nobody is to reach."""
    (root / "outside").mkdir()
    (root / "outside" / "canary").write_bytes(b"[]")
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    root = _with_outside(tmp_path_factory.mktemp("fuzz"))
    made = make_run(root / "run", Recipe(lanes=2, length=4, evaluations=3))
    checkpoint.save(made.checkpoints, 50_000, {"weights": np.zeros((2, 3))}, _META, keep=1)
    return made


@pytest.fixture(scope="module")
def before(run: RunFolder) -> dict[str, Any]:
    """What is said of the run while it is whole."""
    said = summarise(run)
    assert said["notes"] == []
    return said


_META = {"best": {"steps": [1, 2], "returns": [0.5, None]}, "settings": {}}


def _damaged(run: RunFolder, file: Path, seed: int) -> tuple[Any, Any]:
    """What was done to a file, and what is said of the run then."""
    rng, whole = random.Random(seed), file.read_bytes()
    harm = rng.choice(fuzz.kinds(file))
    try:
        harm(file, rng)
        return harm, summarise(run)
    finally:
        fuzz.put_back(file, whole)


NAMES = (
    "config.json",
    "spec.json",
    "status.json",
    "versions.json",
    "metrics.jsonl",
    "checkpoints",
    "edges",
    "episodes",
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(seed=seeds)
def test_a_damaged_file_changes_no_answer_without_a_word(
    run: RunFolder, before: dict[str, Any], name: str, seed: int
) -> None:
    place = run.path / name
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    try:
        harm, after = _damaged(run, random.Random(seed).choice(files), seed)
    except UserError as error:
        in_one_line(error)
    else:
        to_make_room = name == "checkpoints" and harm.__name__ == "gone"  # it has no best policy then, either
        assert after == before or after["notes"] or harm in fuzz.MEANT or to_make_room


def unmeant(file: Path) -> list[Any]:
    """What chance does to a file of this name; somebody who means it may make it another one."""
    return [harm for harm in fuzz.kinds(file) if harm not in fuzz.MEANT]


@settings(max_examples=60)
@given(seed=seeds)
def test_a_damaged_checkpoint_is_never_another_one(run: RunFolder, seed: int) -> None:
    rng, file = random.Random(seed), place(run.checkpoints, 50_000)
    whole, harm = file.read_bytes(), rng.choice(unmeant(file))
    try:
        harm(file, rng)
        loaded = checkpoint.load(run.checkpoints)
    except UserError as error:
        in_one_line(error)
    else:
        assert (loaded.meta, loaded.tree["weights"].tolist()) == (_META, np.zeros((2, 3)).tolist())
    finally:
        fuzz.put_back(file, whole)


@settings(max_examples=80)
@given(seed=seeds)
def test_a_damaged_log_of_episodes_is_never_another_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    file, rng = _with_outside(tmp_path_factory.mktemp("log")) / "log.npz", random.Random(seed)
    totals = np.array([1.5, 2.5])
    np.savez(file, observations=np.ones((2, 3, 2)), actions=np.ones((2, 2, 1)), lengths=[2, 1], totals=totals)
    rng.choice(unmeant(file))(file, rng)
    try:
        log = read_npz(file)
    except UserError as error:
        in_one_line(error)
    else:
        assert log.totals.tolist() == totals.tolist()
        assert all((part == 1).all() for part in (*log.observations, *log.actions))


@settings(max_examples=40)
@given(seed=seeds)
def test_a_command_line_is_answered_or_refused_in_one_line(run: RunFolder, seed: int) -> None:
    words = fuzz.command_line(random.Random(seed), run.path)
    verdict, detail = fuzz.judged(fuzz.call(*words), None, " ".join(words))
    assert verdict not in fuzz.BAD, detail


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HINTS = (int, float, bool, str, int | None, tuple[int, ...], tuple[float, float], dict[str, float | None])


@given(value=plain, hint=st.sampled_from(HINTS))
def test_a_value_has_its_type_or_is_refused_in_one_short_line(value: Any, hint: Any) -> None:
    try:
        found = conform(hint, value, "x")
    except UserError as error:
        in_one_line(error, "x")
    else:
        assert conform(hint, found, "x") == found


@given(content=st.binary() | st.text().map(str.encode) | st.sampled_from([b"[" * 10**5, b"1e999", b"NaN"]))
def test_bytes_are_json_or_a_value_error(content: bytes) -> None:
    try:
        parse_json(content)
    except ValueError as error:
        in_one_line(error)
