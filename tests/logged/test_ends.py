"""A table's column that says which episodes ended by themselves: found, read, refused, and kept by a run."""

import dataclasses
from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import pytest

import apportion
from apportion.core.config import UserError
from apportion.data.columns import Columns
from apportion.data.encoding import Encoding
from apportion.data.reading import Read, read_log, read_rows
from apportion.runs.logged import read_facts, read_for
from driver import apportion as command

EPISODES = data.episodes(12)
LENGTHS = [len(done) for _, done, _ in EPISODES]
FIRST = LENGTHS[0]  # rows of the first episode
CUT = np.arange(len(EPISODES)) % 3 == 0
WRITE = {".csv": data.write_csv, ".parquet": data.write_parquet}


def read(path: Path, **columns: Any) -> Read:
    return read_log(str(path), Columns(**columns))


def flagged(name: str = "done", true: Any = 1, false: Any = 0, before: Any = 0) -> list[dict[str, Any]]:
    """Rows with a flag on each episode's last one, and something else before; every third episode is cut."""
    rows = data.table(EPISODES)
    ends = np.cumsum(LENGTHS) - 1
    for row in rows:
        row[name] = before
    for end, cut in zip(ends, CUT, strict=True):
        rows[end][name] = false if cut else true
    return rows


@pytest.mark.parametrize("suffix", WRITE)
@pytest.mark.parametrize(
    ("true", "false", "before"),
    [
        (1, 0, 0),
        (1.0, 0.0, None),
        (True, False, False),
        ("True", "FALSE", None),
        ("yes", "No", "no"),
        ("t", "f", "f"),
        (" YES ", "0", ""),
        ("1", "false", "0.0"),
    ],
)
def test_flags_are_read_on_last_rows_or_on_all(
    suffix: str, true: Any, false: Any, before: Any, tmp_path: Path
) -> None:
    write, path = WRITE[suffix], tmp_path / f"log{suffix}"
    np.testing.assert_array_equal(
        read(write(path, flagged("done", true, false, before))).log.terminated, ~CUT
    )
    rows = [row | {"done": false if CUT[row["episode"]] else true} for row in data.table(EPISODES)]
    np.testing.assert_array_equal(read(write(path, rows)).log.terminated, ~CUT)


@pytest.mark.parametrize("name", ["terminated", "TERMINATIONS", "terminals", "Dones"])
def test_the_column_is_guessed_by_name_and_said(name: str, tmp_path: Path) -> None:
    found = read(data.write_csv(tmp_path / "log.csv", flagged(name)))
    assert found.choice is not None
    assert found.choice.terminated == name
    assert found.log.notes[0].endswith(f"--outcome outcome; --terminated {name}")


def test_without_the_column_nothing_is_said(tmp_path: Path) -> None:
    plain = read(data.write_csv(tmp_path / "plain.csv", data.table(EPISODES)))
    left_out = read(data.write_csv(tmp_path / "log.csv", flagged()), terminated="")
    for found in (plain, left_out):
        assert found.log.terminated is None
        assert "--terminated" not in found.log.notes[0]
        assert not found.encoding.ended


def test_another_name_may_be_given(tmp_path: Path) -> None:
    """Also one that would be guessed as something else."""
    rows = [row | {"reward": row.pop("outcome")} for row in flagged("result")]
    found = read(data.write_csv(tmp_path / "log.csv", rows), terminated="result")
    np.testing.assert_array_equal(found.log.terminated, ~CUT)
    assert found.choice is not None
    assert found.choice.outcome == "reward"
    assert "--terminated" not in found.log.notes[0]


def test_a_guessed_column_that_is_always_true_may_mean_either(tmp_path: Path) -> None:
    file = data.write_csv(tmp_path / "log.csv", flagged("done", 1, 1))
    found = read(file)
    assert found.log.terminated is None
    assert "'done' is true for every episode" in found.log.notes[0]
    assert found.choice is not None
    assert found.choice.terminated is None
    named = read(file, terminated="done").log.terminated
    assert named is not None
    assert named.all()


OTHERS = ("done", "Terminated", "truncated", "truncation", "truncations", "TimeOut", "timeouts")


def bare() -> list[dict[str, Any]]:
    """Rows whose states have no prefix, and with all the columns of ends that there may be."""
    names = {"s_0": "temp", "s_1": "pH", "s_2": "tank", "remark": "dose"}
    rows = [{names.get(key, key): value for key, value in row.items()} for row in flagged()]
    return [row | dict.fromkeys(OTHERS[1:], row["done"]) for row in rows]


@pytest.mark.parametrize(
    ("columns", "states", "terminated"),
    [
        ({}, ("step", "temp", "pH", "tank", "dose"), "Terminated"),
        ({"terminated": ""}, ("step", "temp", "pH", "tank", "dose"), None),
        ({"terminated": "done"}, ("step", "temp", "pH", "tank", "dose"), "done"),
        ({"states": "t,d"}, ("temp", "tank", "dose"), "Terminated"),
        ({"states": "temp,Terminated"}, ("temp", "Terminated"), "done"),
        ({"states": "temp,Terminated", "actions": "a_0,done"}, ("temp", "Terminated"), None),
        ({"states": "temp,truncated"}, ("temp", "truncated"), "Terminated"),
    ],
)
def test_columns_of_ends_are_no_states_unless_named(
    columns: dict[str, str], states: tuple[str, ...], terminated: str | None, tmp_path: Path
) -> None:
    found = read(data.write_csv(tmp_path / "log.csv", bare()), **columns)
    assert found.log.observation_names == states
    assert found.choice is not None
    assert found.choice.terminated == terminated


@pytest.mark.parametrize("suffix", WRITE)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({1: 2}, "row 2: column 'done' holds 2, neither true nor false: write 1 or 0"),
        ({1: 0.5}, "row 2: column 'done' holds 0.5, neither"),
        ({FIRST - 1: None}, f"row {FIRST}: the last of its episode has no 'done': write 1 if"),
        ({0: 1}, f"row 1: by 'done' it ends before its episode does, in row {FIRST}: give what"),
        ({FIRST: 1}, f"row {FIRST + 1}: by 'done' it ends before its episode does"),
        ({1: "maybe", 2: "1"}, "row 2: column 'done' holds 'maybe', neither true nor false"),
    ],
)
def test_bad_flags_are_refused_by_row(
    suffix: str, values: dict[int, Any], message: str, tmp_path: Path
) -> None:
    """The first episode is cut, the second ended."""
    rows, kinds = flagged(), {type(value) for value in values.values()} & {float, str}
    for place, value in values.items():
        rows[place]["done"] = value
    for kind in kinds:  # a column of a table has one
        rows = [row | {"done": kind(row["done"])} for row in rows]
    file = WRITE[suffix](tmp_path / f"log{suffix}", rows)
    for columns in ({}, {"terminated": "done"}):
        with pytest.raises(UserError) as error:
            read(file, **columns)
        assert f"log{suffix}, {message}" in str(error.value)
        assert "\n" not in str(error.value)
        assert ("--terminated ''" in str(error.value)) == (not columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"terminated": "doen"}, "no column 'doen' for --terminated .did you mean 'done'"),
        ({"terminated": "done", "states": "s_,done"}, "'done' is the flag of ends, and cannot be a state"),
        ({"terminated": "outcome", "outcome": "outcome"}, "'outcome' is the outcome, and cannot be the flag"),
        ({"terminated": "step", "step": "step"}, "'step' is the step, and cannot be the flag of ends"),
    ],
)
def test_a_column_is_one_thing(columns: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(data.write_csv(tmp_path / "log.csv", flagged()), **columns)


SMALL = "--updates=10 --check-every=10 --method.hidden=4 --method.segments=4 --quiet"


@pytest.mark.parametrize(("name", "flags"), [("failed", ["--terminated", "failed"]), ("done", [])])
def test_a_run_reads_other_tables_in_the_same_way(name: str, flags: list[str], tmp_path: Path) -> None:
    file, out = data.write_csv(tmp_path / "log.csv", flagged(name)), tmp_path / "run"
    words = ["--method", "rd", "--states", "s_", "--out", out, *flags, *SMALL.split()]
    assert command("fit", file, *words).code == 0
    run = apportion.load(out)
    facts = read_facts(run.folder)
    assert facts["columns"].terminated == name
    np.testing.assert_array_equal(read_for(run.folder, str(file))[1].terminated, ~CUT)
    apportion.relabel(run, file, tmp_path / "new.csv")
    before, after = file.read_text().splitlines(), (tmp_path / "new.csv").read_text().splitlines()
    assert [line.rsplit(",", 3)[0] for line in after] == before
    all_ended = data.write_csv(tmp_path / "ended.csv", flagged(name, 1, 1))
    np.testing.assert_array_equal(read_for(run.folder, str(all_ended))[1].terminated, True)
    lacking = data.write_csv(tmp_path / "lacking.csv", data.table(EPISODES))
    with pytest.raises(UserError, match=f"no column '{name}', which the run was fitted to"):
        apportion.relabel(run, lacking, tmp_path / "newer.csv")


def test_a_run_of_another_format_tells_what_ends_of_a_table_mean(tmp_path: Path) -> None:
    """Where it was told ends from cuts, a table of ends alone has ends, and one without any is refused. An
    array has no columns."""
    arrays = data.write_npz(tmp_path / "log.npz", EPISODES)
    with pytest.raises(UserError, match="--terminated done names a column of a table"):
        read(arrays, terminated="done")
    told = Encoding.of(read_rows(str(arrays), Columns()), 0)
    told = dataclasses.replace(told, ended=True)
    rows = read_rows(str(data.write_csv(tmp_path / "ended.csv", flagged("done", 1, 1))), Columns())
    np.testing.assert_array_equal(told.apply(rows).terminated, np.ones(len(EPISODES)))
    lacking = data.write_csv(tmp_path / "lacking.csv", data.table(EPISODES))
    with pytest.raises(UserError, match=r"lacking.csv does not say which episodes ended by themselves, as"):
        told.apply(read_rows(str(lacking), Columns()))


def test_the_command_line_takes_none_of_them(tmp_path: Path) -> None:
    file = data.write_csv(tmp_path / "log.csv", flagged())
    for flags, said in (([], True), (["--terminated", ""], False)):
        assert command("identify", file, *flags).err.count("--terminated done") == said  # once
