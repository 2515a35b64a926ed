"""CSV files as spreadsheets write them where a comma is the decimal mark."""

from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.data.columns import Columns
from apportion.data.csv_files import Dialect, csv_records, read_dialect
from apportion.data.reading import read_log, read_rows, write_copy
from apportion.data.rows import Earned, Log

ROWS = data.table(data.episodes(12))


def read(path: Path) -> Log:
    return read_log(str(path), Columns()).log


def write(path: Path, rows: list[dict[str, Any]], dialect: Dialect) -> Path:
    def cell(value: Any) -> str:
        return dialect.number(value) if isinstance(value, float) else "" if value is None else str(value)

    lines = [list(rows[0]), *([cell(value) for value in row.values()] for row in rows)]
    path.write_text("".join(f"{dialect.mark.join(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "dialect", [Dialect(";", ","), Dialect(";", "."), Dialect("\t", ","), Dialect("|", ".")]
)
def test_other_marks_are_told_from_the_file(tmp_path: Path, dialect: Dialect) -> None:
    plain = read(data.write_csv(tmp_path / "plain.csv", ROWS))
    path = write(tmp_path / "log.csv", ROWS, dialect)
    assert read_dialect(path) == dialect
    log = read(path)
    np.testing.assert_array_equal(np.concatenate(log.observations), np.concatenate(plain.observations))
    np.testing.assert_array_equal(log.totals, plain.totals)
    said = [note for note in log.notes if f"{dialect.mark!r} between its columns" in note]
    assert ["decimal marks" in note for note in said] == [dialect.decimal == ","]


def test_what_is_added_is_written_like_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", ROWS, Dialect(";", ","))
    reward = np.linspace(-0.5, 1e-6, len(ROWS))
    earned = Earned(read_rows(str(path), Columns()), reward, {"s_0": 2 * reward}, {})
    write_copy(str(path), str(tmp_path / "new.csv"), earned)
    before, after = path.read_text().splitlines(), (tmp_path / "new.csv").read_text().splitlines()
    assert after[0] == f"{before[0]};reward;credit_s_0"
    assert after[1] == f"{before[1]};-0,5;-1,0"
    found = read_rows(str(tmp_path / "new.csv"), Columns(states="reward,credit_")).states
    np.testing.assert_array_equal(found["reward"], reward)
    np.testing.assert_array_equal(found["credit_s_0"], 2 * reward)


def test_a_list_of_numbers_among_fractions_is_no_decimal_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", [row | {"remark": "1,2"} for row in ROWS], Dialect(";", "."))
    assert read_dialect(path) == Dialect(";", ".")


def test_a_damaged_row_does_not_hide_the_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", ROWS, Dialect(";", ","))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], f"{lines[3]};0,5", *lines[4:]]))
    names = len(ROWS[0])
    with pytest.raises(UserError, match=rf"row 3: {names + 1} values in {names} columns"):
        read(path)


def test_commas_within_names_are_no_marks(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("episode;heat, in K;outcome\n1;2;3\n")
    assert read_dialect(tmp_path / "log.csv") == Dialect(";", ".")
    (tmp_path / "log.csv").write_text('episode,"a;b;c;d",outcome\n1,2,3\n')
    assert read_dialect(tmp_path / "log.csv") == Dialect()


@pytest.mark.parametrize("written", ["1.234,{:03}", "{} %"])
def test_texts_that_should_be_numbers_are_shown(tmp_path: Path, written: str) -> None:
    """Thousands apart, or a unit behind each: how to write them is said."""
    rows = [row | {"s_1": written.format(place)} for place, row in enumerate(ROWS)]
    example = written.format(0).replace(".", r"\.")
    with pytest.raises(
        UserError, match=rf"'s_1' holds .* texts, as '{example}', .* write numbers as 1234\.5"
    ):
        read(write(tmp_path / "log.csv", rows, Dialect(";", ",")))
    rows = [row | {"outcome": f"{row['outcome']:.1f} kg"} for row in ROWS]
    with pytest.raises(UserError, match=r"row 1: column 'outcome' holds '.* kg', and outcomes are numbers"):
        read(data.write_csv(tmp_path / "log.csv", rows))


def test_records_may_span_lines(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,"two\nlines"\n3,4\n')
    texts = [text for text, _ in csv_records(tmp_path / "x.csv", ",")]
    assert texts == ["a,b\n", '1,"two\nlines"\n', "3,4\n"]
