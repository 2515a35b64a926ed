"""Logged episodes in every format, what is guessed and mended on the way, and the data that are refused."""

from pathlib import Path
from typing import Any

import h5py
import logged_data as data
import numpy as np
import polars
import pytest

from apportion.core.config import UserError
from apportion.data import csv_files, tables
from apportion.data import rows as logged_rows
from apportion.data.columns import Columns
from apportion.data.reading import FORMATS, Format, read_log, read_rows, write_copy
from apportion.data.rows import Earned, Log

EPISODES = data.episodes(12)


def read(path: str | Path, **columns: Any) -> Log:
    return read_log(str(path), Columns(**columns)).log


def same(one: Log, other: Log) -> None:
    for mine, theirs in zip(one.observations, other.observations, strict=True):
        np.testing.assert_allclose(mine[: len(theirs)], theirs[: len(mine)])
    for mine, theirs in zip(one.actions, other.actions, strict=True):
        np.testing.assert_allclose(mine, theirs)
    np.testing.assert_allclose(one.totals, other.totals)


def test_every_format_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "minari").mkdir()
    rows = data.table(EPISODES)
    log = read(data.write_csv(tmp_path / "log.csv", rows))
    assert log.observation_names == data.STATES
    last = data.table(EPISODES, last_only=True)
    same(log, read(data.write_csv(tmp_path / "last.csv", last)))
    zeros = [row | {"outcome": row["outcome"] or 0.0} for row in last]  # a reward that is paid at the end
    same(log, read(data.write_csv(tmp_path / "zeros.csv", zeros)))
    same(log, read(data.write_parquet(tmp_path / "log.parquet", rows)))
    same(log, read(data.write_npz(tmp_path / "log.npz", EPISODES)))
    same(log, read(data.write_d3rlpy(tmp_path / "log.h5", EPISODES)))
    same(log, read(data.write_flat(tmp_path / "flat.h5", EPISODES)))
    sets = read(data.write_minari("toy/log-v0", EPISODES))
    same(log, sets)
    assert [len(each) for each in sets.observations] == [len(each) + 1 for each in log.observations]


def test_a_format_is_a_reader_a_writer_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of a file that names a table, which is read and written instead."""

    def named(file: Path) -> Path:
        return file.with_suffix(".csv")

    def write(source: str, target: Path, earned: Earned) -> None:
        csv_files.write(str(named(Path(source))), target, earned)

    monkeypatch.setitem(
        FORMATS, ".link", Format(lambda file, *how: tables.read(str(named(Path(file))), *how), write, True)
    )
    file = data.write_csv(tmp_path / "log.csv", data.table(EPISODES)).with_suffix(".link")
    same(read(file), read(named(file)))
    rows = read_rows(str(file), Columns())
    reward = np.arange(float(rows.lengths.sum()))
    write_copy(str(file), str(tmp_path / "new" / "copy.link"), Earned(rows, reward, {}, {}))
    written = (tmp_path / "new" / "copy.link").read_text().splitlines()
    added = [line.rpartition(",")[2] for line in written]
    assert added == ["reward", *map(str, reward.tolist())]


def test_a_file_that_tells_ends_from_cuts_says_which_episodes_ended(tmp_path: Path) -> None:
    """Every third is cut. Where all ends are terminals, they may mean either."""
    cut = np.arange(len(EPISODES)) % 3 == 0
    dumped, flat = data.write_d3rlpy(tmp_path / "log.h5", EPISODES), tmp_path / "flat.h5"
    data.write_flat(flat, EPISODES)
    assert read(dumped).terminated is read(flat).terminated is None
    with h5py.File(dumped, "a") as file:
        for number in np.flatnonzero(cut):
            file[f"terminated_{number}"][()] = False
    with h5py.File(flat, "a") as file:
        ends = file["terminals"][()]
        file["timeouts"] = ends & np.repeat(cut, np.diff(np.flatnonzero(ends), prepend=-1))
        file["terminals"][:] = ends & ~file["timeouts"][()]
        np.savez(tmp_path / "flat.npz", **{name: file[name][()] for name in file})
    for path in (dumped, flat, tmp_path / "flat.npz"):
        np.testing.assert_array_equal(read(path).terminated, ~cut)


def test_columns_are_guessed_by_name_and_said(tmp_path: Path) -> None:
    names = {"episode": "Batch", "step": "t", "outcome": "yield", "s_0": "temp", "s_1": "pH", "s_2": "rpm"}
    rows = [{names.get(key, key): value for key, value in row.items()} for row in data.table(EPISODES)]
    file = data.write_csv(tmp_path / "log.csv", rows)
    log = read(file)
    assert log.observation_names == ("t", "temp", "pH", "rpm", "remark")
    assert log.action_names == ("a_0",)
    assert log.notes[0].startswith("Guessed by names: --episode Batch; --step t; --states t, temp, pH, rpm")
    chosen = read(file, states="te,rpm", actions="", episode="Batch")
    assert chosen.observation_names == ("temp", "rpm")
    assert chosen.action_names == ()


def test_steps_that_are_texts_may_be_left_aside(tmp_path: Path) -> None:
    """By a name that is guessed: rows stand in their order."""
    rows = [row | {"time": f"day {row.pop('step') + 1}"} for row in data.table(EPISODES)]
    file = data.write_csv(tmp_path / "log.csv", rows)
    with pytest.raises(UserError, match=r"'time' holds texts, and steps are numbers or times .* --step ''"):
        read(file, states="s_")
    log = read(file, states="s_", step="")
    same(log, read(data.write_csv(tmp_path / "plain.csv", data.table(EPISODES)), states="s_"))
    assert "--step" not in log.notes[0]


@pytest.mark.parametrize(
    "form", ["2024-01-{:02}", "2024-01-{:02}T08:30:00Z", "2024-01-{:02} 08:30:00.5+02:00"]
)
def test_steps_may_be_times_and_must_rise(tmp_path: Path, form: str) -> None:
    """In an unsigned type as well."""
    rows = [row | {"time": form.format(row.pop("step") + 1)} for row in data.table(EPISODES)]
    plain = read(data.write_csv(tmp_path / "plain.csv", data.table(EPISODES)), states="s_")
    same(read(data.write_csv(tmp_path / "log.csv", rows), states="s_"), plain)
    bare = [{name.replace("s_", "x"): value for name, value in row.items()} for row in rows]
    assert "time" not in read(data.write_csv(tmp_path / "bare.csv", bare)).observation_names  # numbers are
    with pytest.raises(UserError, match="has no column with a state"):  # nor may it be the only one
        read(tmp_path / "bare.csv", without="x,rem,a_")
    rows[1]["time"] = form.replace("2024", "2023").format(1)
    with pytest.raises(UserError, match=r"row 2: step .* of an episode comes after"):
        read(data.write_csv(tmp_path / "log.csv", rows), states="s_")
    falling = (1000 - polars.col("step")).cast(polars.UInt16)
    polars.DataFrame(data.table(EPISODES)).with_columns(step=falling).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(UserError, match="row 2: step 999 of an episode comes after 1000"):
        read(tmp_path / "log.parquet", states="s_")


def test_columns_may_be_left_aside(tmp_path: Path) -> None:
    """A second outcome, or a text that differs in every row, is no state because nobody named the states."""
    rows = [row | {"fee": 1.0, "note": f"n{place}"} for place, row in enumerate(data.table(EPISODES))]
    file = data.write_csv(
        tmp_path / "log.csv", [{k.replace("s_", "x"): v for k, v in r.items()} for r in rows]
    )
    with pytest.raises(UserError, match=r"'note' holds .* different texts.* --without"):
        read(file)
    assert read(file, without="fee,no,rem").observation_names == ("step", "x0", "x1", "x2")
    with pytest.raises(UserError, match="'x1' is named by --states and left aside by --without"):
        read(file, without="x1,note", states="x0,x1")
    with pytest.raises(UserError, match="no column 'nothing' for --without"):
        read(file, without="nothing")


def test_missing_numbers_are_filled_and_marked_and_texts_are_categories(tmp_path: Path) -> None:
    rows = [row | {"s_2": ("up", "down", "off")[i % 3]} for i, row in enumerate(data.table(EPISODES))]
    rows[3]["s_1"] = rows[5]["s_2"] = None
    log = read(data.write_csv(tmp_path / "log.csv", rows), states="s_", actions="a_")
    assert log.observation_names == (*data.STATES, "s_1 missing")
    seen = np.concatenate(log.observations)
    assert np.flatnonzero(seen[:, 3]).tolist() == [3]
    assert seen[3, 1] == pytest.approx(np.delete(seen[:, 1], 3).mean())
    assert any("'s_1' is missing in 1 of" in note for note in log.notes)
    assert log.levels == (0, 0, 4, 0, 0)
    assert set(seen[:, 2]) == {0.0, 1.0, 2.0, 3.0}


def test_columns_that_are_made_here_have_names_of_their_own(tmp_path: Path) -> None:
    """Else two dimensions would have one name, and one credit."""
    rows = [row | {"s_1 missing": 0.0, "s_1 t-1": 0.0} for row in data.table(EPISODES)]
    assert "s_1 missing" in read(data.write_csv(tmp_path / "log.csv", rows), states="s_").observation_names
    with pytest.raises(UserError, match="two dimensions would be called 's_1 t-1'"):
        read(tmp_path / "log.csv", states="s_", lags=1)
    rows[3]["s_1"] = None
    with pytest.raises(UserError, match="two dimensions would be called 's_1 missing'"):
        read(data.write_csv(tmp_path / "log.csv", rows), states="s_")


def test_columns_that_tell_the_outcome_or_each_other_are_named(tmp_path: Path) -> None:
    """On every row, or on the last; a cause of single steps is none of these. So are near copies."""
    rows = [row | {"s_3": 32 - 1.8 * row["outcome"], "s_4": 0.0} for row in data.table(EPISODES)]
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        row["s_4"] = row["outcome"] if after is None or after["step"] == 0 else row["s_0"]
    notes = read(data.write_csv(tmp_path / "log.csv", rows), states="s_").notes
    assert [note[:5] for note in notes if "tells the outcome" in note] == ["'s_3'", "'s_4'"]
    single = [row | {"outcome": row["s_0"]} for row in data.table(EPISODES) if row["step"] == 0]
    single.append(single[-1] | {"step": 1, "s_0": 0.0})
    assert "tells" not in str(read(data.write_csv(tmp_path / "log.csv", single), states="s_").notes)
    alike = [row | {"s_9": -1.8 * row["s_1"] + 32 + 1e-4 * row["s_2"]} for row in data.table(EPISODES)]
    notes = read(data.write_csv(tmp_path / "log.csv", alike), states="s_").notes
    assert any(note.startswith("s_1, s_9 say nearly the same") for note in notes)


FIRST = len(EPISODES[0][1])  # rows of the first episode


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: [row.update(outcome=None) for row in rows[:FIRST]],
            f"rows 1 to {FIRST}: episode 0 has no",
        ),
        (lambda rows: rows[1].update(outcome=99.0), "row 2: episode 0 has two outcomes that differ"),
        (lambda rows: rows[1].update(step=-1), "row 2: step -1 of an episode comes after 0"),
        (lambda rows: rows[FIRST + 1].update(episode=0), f"row {FIRST + 2}: episode 0 goes on after another"),
        (lambda rows: rows[4].update(s_1="high"), "row 5: column 's_1' holds 'high' among numbers"),
        (lambda rows: rows[4].update(s_1=float("inf")), "row 5: column 's_1' holds infinity"),
        (lambda rows: rows[4].update(a_0=-1e39), "row 5: column 'a_0' holds -1e+39, more than learners can"),
        (lambda rows: [row.update(outcome=None) for row in rows], "column 'outcome' is empty: fill in"),
        (lambda rows: [row.update(s_1=None) for row in rows], "column 's_1' holds no value"),
        (lambda rows: rows[2].update(episode=None), "row 3: no episode is named"),
    ],
)
def test_bad_tables_are_refused_by_row_or_column(tmp_path: Path, change: Any, message: str) -> None:
    for write, name in ((data.write_csv, "log.csv"), (data.write_parquet, "log.parquet")):
        rows = data.table(EPISODES)
        change(rows)
        if name == "log.parquet" and isinstance(rows[4]["s_1"], str):
            continue  # its columns have a type
        with pytest.raises(UserError) as error:
            read(write(tmp_path / name, rows), states="s_", actions="a_")
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_other_bad_data_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    file = data.write_csv(tmp_path / "log.csv", data.table(EPISODES))
    (tmp_path / "none.csv").write_text("episode,s_0,outcome\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "wide.csv").write_text("episode,s_0,outcome\n1,2,3\n1,2\n")
    (tmp_path / "twice.csv").write_text("episode,s_0,s_0,outcome\n1,2,3,4\n")
    (tmp_path / "text.h5").write_text("hello")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "text.parquet").write_text("hello")
    refused: list[tuple[Any, dict[str, Any], str]] = [
        ("none.csv", {}, "holds no row"),
        ("empty.csv", {}, "is empty"),
        ("wide.csv", {}, "row 2: 2 values in 3 columns"),
        ("twice.csv", {}, "two columns 's_0'"),
        ("log.xlsx", {"episode": "id"}, "none of .csv"),
        ("absent.csv", {}, "no file"),
        ("text.h5", {}, "cannot be read as HDF5"),
        ("text.parquet", {}, "cannot be read as Parquet"),
        ("log.txt", {}, "nor a Minari data set"),
        ("run", {}, "is a run: apportion show has its graph"),
        ("log.csv", {"states": "s_,a_0"}, "'a_0' is both state and action"),
        ("log.csv", {"states": "x_"}, "no column 'x_' for --states"),
        ("log.csv", {"outcome": "s_0", "states": "s_0"}, "'s_0' is the outcome"),
        ("log.csv", {"lags": -1}, "--lags -1"),
    ]
    for name, columns, message in refused:
        with pytest.raises(UserError, match=message):
            read(tmp_path / name, **columns)
    with pytest.raises(UserError, match="no Minari data set 'toy/other-v0'"):
        read("toy/other-v0")
    monkeypatch.setattr(logged_rows, "free_bytes", lambda: 1000)
    with pytest.raises(UserError, match=r"log.csv is too large"):
        read(file)


def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data.write_csv(tmp_path / "log.csv", data.table(EPISODES))
    for module in ("polars", "h5py", "minari"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for name, extra in ((file, "tables"), (tmp_path / "x.h5", "minari"), ("toy/x-v0", "minari")):
        Path(tmp_path / "x.h5").touch()
        with pytest.raises(UserError, match=rf"pip install 'apportion\[{extra}\]'"):
            read(name)
