"""What people are told of logs: by the names of their columns, of the steps that they ask for, or why not."""

from pathlib import Path

import logged_data as data
import numpy as np
import pytest

import apportion
from apportion.core.config import UserError
from apportion.report.figures import plot_credit
from driver import apportion as command


def test_a_copy_is_called_by_its_column(tmp_path: Path) -> None:
    rows = [row | {"s_fahrenheit": 32 - 1.8 * row["s_0"]} for row in data.table(data.episodes(60))]
    rows = [row | {"s_kind": "abc"[row["step"] % 3]} for row in rows]
    file = data.write_csv(tmp_path / "log.csv", rows)
    notes = command("identify", file, "--json").json["certificate"]["notes"]
    assert "'s_fahrenheit' equals 's_0' up to its unit: the edges of both stand at 's_0'" in notes


def test_a_step_is_explained_in_the_episodes_that_have_it(fitted: apportion.Run, tmp_path: Path) -> None:
    episodes = sorted(data.episodes(8, seed=4), key=lambda each: len(each[1]))
    lengths = [len(done) for _, done, _ in episodes]
    assert lengths[0] < lengths[-1]
    file, last = data.write_csv(tmp_path / "log.csv", data.table(episodes)), lengths[-1] - 1
    found = fitted.explain(episode=file, steps=[0, last], precision=data.FEW)
    told = [[step for step in (0, last) if step < length] for length in lengths]
    for lane in found["lanes"]:
        assert [episode["steps"] for episode in lane["episodes"]] == told
    late = fitted.explain(episode=file, steps=[last], precision=data.FEW)["lanes"][0]
    assert [episode["steps"] for episode in late["episodes"]] == [each[1:] for each in told]
    assert late["episodes"][0]["contributions"] == []
    assert np.isfinite(late["mean"]).all()
    plot_credit(fitted.explain(episode=file, steps=[last], precision=data.FEW), tmp_path / "credit.svg")
    with pytest.raises(UserError, match=f"--step {last + 1} is beyond every episode, of {last + 1} steps at"):
        fitted.explain(episode=file, steps=[last + 1], precision=data.FEW)


@pytest.mark.parametrize("unit", [1e39, 1e200, 1e-40])
def test_outcomes_that_single_precision_cannot_hold_are_refused(tmp_path: Path, unit: float) -> None:
    rows = [row | {"outcome": unit * row["outcome"]} for row in data.table(data.episodes(12))]
    with pytest.raises(UserError, match="which rewards cannot hold: give another unit"):
        apportion.fit(data.write_csv(tmp_path / "log.csv", rows), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_outcomes_that_are_all_the_same_have_no_answer(tmp_path: Path) -> None:
    """Their variance is none, of which no share can be told."""
    rows = [row | {"outcome": 0.1} for row in data.table(data.episodes(40))]
    file = data.write_csv(tmp_path / "log.csv", rows)
    apportion.fit(file, "rd", out=tmp_path / "run", settings=data.QUICK, quiet=True)
    said = " ".join(command("show", tmp_path / "run").out.split())
    assert "Fitted to 32 episodes; the outcomes of 8 others are all the same." in said
    assert "The data cannot support an answer (seed 0)" in said
    assert "unexplained" not in said
