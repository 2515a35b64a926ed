"""Who else hears of a run's numbers: a callback, pandas, Weights & Biases."""

import sys
from pathlib import Path
from typing import Any

import pytest

import apportion as door
from apportion.core.config import UserError
from apportion.runs import logs
from apportion.runs.listeners import WandbLog
from driver import GREENHOUSE, TINY, Run, apportion, tiny

pytestmark = pytest.mark.slow


def test_a_callback_hears_every_line_and_may_stop_the_training(out: Path) -> None:
    heard: list[dict[str, Any]] = []

    def listen(line: dict[str, Any]) -> bool:
        heard.append(line)
        return line["kind"] != "eval"

    settings = TINY | {"method.hidden": (8, 8)}
    more = {"seeds": 2, "out": out, "settings": settings, "quiet": True}
    run = door.train(GREENHOUSE, "grd", steps=2000, callback=listen, **more)
    status = run.summary()["status"]
    assert (status["state"], status["step"] < 2000) == ("stopped", True)
    assert sorted(map(str, heard)) == sorted(map(str, run.folder.read_metrics()))
    later: list[dict[str, Any]] = []
    assert run.resume(callback=later.append, quiet=True).summary()["status"]["state"] == "finished"
    assert {line["step"] for line in later} > {2000}
    assert min(line["step"] for line in later) > status["step"]


def test_metrics_are_a_table_where_pandas_is(greenhouse_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    run = door.load(greenhouse_run.path)
    table = run.frame()
    assert len(table) == len(run.metrics())
    last = table[(table.kind == "eval") & (table.step == run.steps[-1])].sort_values("lane")
    assert last["return"].tolist() == run.returns[:, -1].tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        run.frame()


def test_without_wandb_the_complaint_names_the_extra(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), "--wandb")
    assert (answer.code, answer.err) == (1, "error: --wandb needs an extra: pip install 'apportion[wandb]'\n")
    assert not out.exists()


@pytest.mark.filterwarnings("ignore")  # those of a large package are its own
def test_wandb_gets_means_and_lanes(
    greenhouse_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    with WandbLog(greenhouse_run.path, greenhouse_run.read_config()) as log:
        for line in greenhouse_run.read_metrics():
            log(line)
        shown = dict(log._open.summary)
        config = dict(log._open.config)
    lanes = greenhouse_run.read_metrics()[-1]["return"]
    assert shown["eval/return"] == pytest.approx(sum(lanes) / 2)
    assert [shown[f"eval/return/lane{lane}"] for lane in (0, 1)] == lanes
    assert config["method"]["name"] == "grd"
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert file.stat().st_size > 1000


def test_what_a_callback_raises_is_not_taken_for_a_full_disk(out: Path) -> None:
    """It ends the training, as any other mistake in it does, and its line is written once."""

    def listen(line: dict[str, Any]) -> None:
        if line["kind"] == "eval":
            raise ConnectionError("the tracking server is away")

    with pytest.raises(ConnectionError, match="away"):
        door.train(GREENHOUSE, "observed", steps=2000, out=out, settings=TINY, quiet=True, callback=listen)
    found = logs.examine(door.load(out).folder.metrics)
    assert not found.notes
    assert sum(entry["kind"] == "eval" for entry in found.entries) == 1
