"""Tables with a row for each path, and counts of journeys: read as so many episodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_data import SMALL, write_csv

import apportion
from apportion import cli
from apportion.core.config import UserError
from apportion.data.columns import Columns
from apportion.data.reading import read_log, read_rows

PATHS = [
    {"path": "mail > shop", "bought": 2, "worth": 30.0, "lost": 1},
    {"path": "shop", "bought": 0, "worth": 0.0, "lost": 2},
    {"path": "mail>search > shop", "bought": 1, "worth": 5.0, "lost": 0},
]
COUNTED = Columns(path="path", count="bought", null="lost")


def test_a_path_is_as_many_episodes_as_journeys_went_it(tmp_path: Path) -> None:
    rows = read_rows(str(write_csv(tmp_path / "paths.csv", PATHS)), COUNTED)
    assert rows.lengths.tolist() == [2, 2, 2, 1, 1, 3]
    assert rows.totals.tolist() == [1, 1, 0, 0, 0, 1]
    assert list(rows.states) == ["path"]
    touches = [each.tolist() for each in rows.split(rows.states["path"])]
    assert touches == [["mail", "shop"]] * 3 + [["shop"]] * 2 + [["mail", "search", "shop"]]


def test_values_are_divided_among_conversions(tmp_path: Path) -> None:
    columns = Columns(path="path", count="bought", null="lost", value="worth")
    log = read_log(str(write_csv(tmp_path / "paths.csv", PATHS)), columns).log
    assert log.answers is None
    assert log.totals.tolist() == [15, 15, 0, 0, 0, 5]


def test_without_a_count_a_row_is_a_journey(tmp_path: Path) -> None:
    rows = [{"way": "a > b", "outcome": "yes"}, {"way": "a", "outcome": "no"}]
    found = read_log(str(write_csv(tmp_path / "paths.csv", rows)), Columns(path="way")).log
    assert found.answers == (0, 1)
    assert [len(each) for each in found.observations] == [2, 1]
    assert found.totals.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "a > > b"}, "row 1: the path 'a > > b' has an empty touch"),
        ({"bought": -1}, "row 1: column 'bought' holds -1"),
        ({"bought": 0.5}, "holds 0.5, and counts are"),
        ({"lost": None}, "row 1: column 'lost' holds no number"),
        ({"bought": 10**13}, "too large"),
        ({"bought": 0, "worth": 1.0}, "row 1: it has a 'worth', but no conversion"),
    ],
)
def test_what_is_wrong_with_a_table_of_paths_is_said(tmp_path: Path, change: Any, said: str) -> None:
    columns = Columns(path="path", count="bought", null="lost", value="worth")
    with pytest.raises(UserError, match=said):
        read_log(str(write_csv(tmp_path / "paths.csv", [PATHS[0] | change, *PATHS[1:]])), columns)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": "bought"}, "--count bought needs --path"),
        ({"path": "path", "null": "lost"}, "--null lost needs --count"),
        ({"path": "path", "episode": "path"}, "--episode says nothing of a table of paths"),
        ({"path": "way", "count": "bought"}, "no column 'way' for --path"),
        ({"path": "path", "count": "bought"}, "every journey converted"),
        ({"path": "path", "count": "bought", "null": "bought"}, "named twice"),
        ({"path": "path"}, "give --count"),
    ],
)
def test_columns_that_do_not_make_paths_are_refused(tmp_path: Path, given: Any, said: str) -> None:
    data = str(write_csv(tmp_path / "paths.csv", PATHS))
    with pytest.raises(UserError, match=said):
        read_log(data, Columns(**given))


def test_json_lines_are_no_table_of_paths(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"outcome": 1, "turns": [{"s": 1}]}\n')
    with pytest.raises(UserError, match="--path names a column of a table"):
        read_log(str(tmp_path / "log.jsonl"), COUNTED)


def test_credit_by_touch_is_that_of_the_same_journeys_step_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, rows = np.random.default_rng(0), []
    for path, chance in (("mail", 0.3), ("shop", 0.1), ("mail > shop", 0.3), ("shop > mail > mail", 0.6)):
        bought = int(rng.binomial(60, chance))
        rows.append({"path": path, "bought": bought, "lost": 60 - bought})
    data = write_csv(tmp_path / "paths.csv", rows)
    named = {"path": "path", "count": "bought", "null": "lost"}
    run = apportion.fit(data, out=tmp_path / "run", settings=SMALL, quiet=True, **named)
    kinds = {each["value"]: each for each in run.credit(by="path")}
    assert kinds["mail"]["n"] == 60 * 4
    assert kinds["mail"]["credit"] > kinds["shop"]["credit"]
    assert sum(each["last"] for each in kinds.values()) == sum(row["bought"] for row in rows)
    with pytest.raises(UserError, match="a row for each path"):
        cli._run(["relabel", str(tmp_path / "run"), str(data), "--out", str(tmp_path / "new.csv")])
