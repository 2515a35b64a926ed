"""What contributions are compared with: enough steps from everywhere in a log, and a word where not."""

from pathlib import Path

import logged_data as data
import numpy as np
import polars
import pytest

import apportion
from apportion.runs.contributions import Precision
from apportion.runs.credit import MOST_BEHIND
from apportion.runs.explaining import Explainer, Selection, explain_run
from apportion.runs.fitting import SHOWN
from driver import apportion as command

pytestmark = pytest.mark.slow


def short_log(path: Path, count: int) -> Path:
    """Episodes of one step, but for each tenth; s_2 rises from the first to the last."""
    rows = []
    for number, (seen, done, reward) in enumerate(data.episodes(count)):
        steps = 2 if number % 10 == 0 else 1
        seen[:, 2] = number / count
        rows.append((seen[: steps + 1], done[:steps], reward[:steps]))
    return data.write_csv(path, data.table(rows))


def test_of_short_episodes_so_many_are_stored_that_steps_suffice(tmp_path: Path) -> None:
    log = short_log(tmp_path / "log.csv", 1600)
    run = apportion.fit(log, "rd", states="s_", out=tmp_path / "run", settings=data.QUICK, quiet=True)
    stored = run.folder.read_episodes(run.folder.episode_steps()[-1])[0]
    steps = sum(len(each["actions"]) for each in stored)
    assert len(stored) > SHOWN
    assert MOST_BEHIND <= steps <= MOST_BEHIND + 2
    background = Explainer(run.folder, Precision()).background[0]
    assert len(background) == Precision().steps_behind()
    said = explain_run(run.folder, Selection(), Precision())["skipped"]
    assert not any("stores only" in each for each in said)
    when = background[:, 2]
    assert when.min() < 0.1
    assert when.max() > 0.9  # and not from the beginning of the log alone


def test_where_less_is_stored_than_was_asked_for_it_is_said(tmp_path: Path) -> None:
    log = short_log(tmp_path / "log.csv", 60)
    run = apportion.fit(log, "rd", states="s_", out=tmp_path / "run", settings=data.QUICK, quiet=True)
    said = command("explain", run.path).err
    assert "stores only" in said
    assert "steps to compare with, not 256" in said
    assert "stores only" not in command("explain", run.path, "--background", "5").err


def test_credit_is_the_same_however_many_episodes_are_explained_at_once(
    fitted: apportion.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data.write_csv(tmp_path / "few.csv", data.table(data.episodes(8, seed=5)))
    written = []
    for steps in (1, 20, 1000):
        monkeypatch.setattr("apportion.runs.crediting._EXPLAINED", steps)
        out = tmp_path / f"new{steps}.csv"
        apportion.relabel(fitted, file, out, credit=True, precision=data.FEW)
        written.append(polars.read_csv(out).select(polars.col("^credit_.*$")).to_numpy())
    np.testing.assert_allclose(written[1], written[0], atol=1e-5)
    np.testing.assert_allclose(written[2], written[0], atol=1e-5)
