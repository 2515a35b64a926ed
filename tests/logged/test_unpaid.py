"""Logs without outcomes are relabelled and explained: only rewards that shall sum up to them need them."""

from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import pytest

import apportion
from apportion.core.config import UserError

EPISODES = data.episodes(6, seed=3)
ROWS = data.table(EPISODES)


def rewards(run: Any, file: Path, **settings: Any) -> Any:
    out = file.with_stem("new")
    apportion.relabel(run, file, out, **settings)
    return data.column(out)


UNPAID = {
    "no column": [{key: value for key, value in row.items() if key != "outcome"} for row in ROWS],
    "an empty column": [row | {"outcome": None} for row in ROWS],
    "one episode": [row | ({"outcome": None} if row["episode"] == 2 else {}) for row in ROWS],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("rows", UNPAID.values(), ids=UNPAID)
def test_a_table_without_outcomes_gets_the_same_rewards(
    fitted: apportion.Run, tmp_path: Path, suffix: str, rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "paid").mkdir()
    write = {".csv": data.write_csv, ".parquet": data.write_parquet}[suffix]
    paid = rewards(fitted, write(tmp_path / f"paid/log{suffix}", ROWS))
    file = write(tmp_path / f"log{suffix}", rows)
    np.testing.assert_allclose(rewards(fitted, file), paid, atol=1e-3)  # an outcome tells a little more
    told = fitted.explain(episode=file, precision=data.FEW)["lanes"][0]["episodes"]
    assert len(told) == len(EPISODES)
    with pytest.raises(UserError, match=r"log.*: episode [13] of 6 has no outcome: .* without --exact"):
        apportion.relabel(fitted, file, tmp_path / f"exact{suffix}", exact=True)


def test_arrays_without_totals_are_relabelled(fitted: apportion.Run, tmp_path: Path) -> None:
    file = data.write_npz(tmp_path / "log.npz", EPISODES)
    apportion.relabel(fitted, file, tmp_path / "paid.npz")
    with np.load(file) as arrays:
        np.savez(tmp_path / "unpaid.npz", **{name: arrays[name] for name in arrays if name != "totals"})
    apportion.relabel(fitted, tmp_path / "unpaid.npz", tmp_path / "new.npz")
    with np.load(tmp_path / "paid.npz") as paid, np.load(tmp_path / "new.npz") as new:
        np.testing.assert_allclose(new["reward"], paid["reward"], atol=1e-3)
    with pytest.raises(UserError, match="no array 'totals'"):
        apportion.fit(tmp_path / "unpaid.npz", out=tmp_path / "run", quiet=True)


SHARES = """
from apportion.methods import rd
from apportion.methods.rd import Config

def make(config: Config):
    method = rd.make(config)
    return method._replace(reward=lambda state, steps: steps.segment_total / 10.0)
"""


def test_a_method_that_divides_outcomes_says_that_it_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shares.py").write_text(SHARES)
    monkeypatch.syspath_prepend(tmp_path)
    file = data.write_csv(tmp_path / "log.csv", data.table(data.episodes(20)))
    quick = {"updates": 2, "check_every": 1, "method.hidden": (4,)}
    run = apportion.fit(file, "shares:make", out=tmp_path / "run", settings=quick, quiet=True)
    unpaid = data.write_csv(tmp_path / "unpaid.csv", UNPAID["one episode"])
    with pytest.raises(UserError, match="episode 3 of 6 has no outcome, by which shares:make divides it"):
        apportion.relabel(run, unpaid, tmp_path / "new.csv")
