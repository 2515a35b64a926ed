"""Speed: only what is asked for is measured, what was measured is kept, and pages have the tables of it."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apportion.core.config import UserError
from lib import memory, timing
from scripts import load

ROOT = Path(__file__).parents[2]
speed, tables = load("benchmarks/speed.py"), load("benchmarks/tables.py")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ROW = {
    "method": "oracle",
    "size": "Ant",
    "lanes": 5,
    "milliseconds": 12.5,
    "lane_updates_per_second": 400.0,
    "gflop_per_lane_update": 0.7,
    "share_of_peak": 0.5,
    "program_bytes": 2 * 10**9,
    "compile_seconds": 7.0,
}
LEFT_OUT = {
    "method": "grd (gradient)",
    "size": "Humanoid",
    "lanes": 20,
    "gflop_per_lane_update": 77.0,
    "left_out": "one update would take about 80 s",
}
TRAINING = {"env": "HalfCheetah-v4", "method": "grd", "lanes": 1, "iterations_per_second": 0.3}
MEASURED: dict[str, Any] = {
    "versions": {"platform": "Linux aarch64", "jax": "0.10.2", "python": "3.11.7", "devices": ["cpu"]},
    "cores": 2,
    "peak": {"float32": 1e11},
    "ratios": {"torch_eager_grd": 10.0},
    "peers": {
        "env": "HalfCheetah-v4",
        "milliseconds": {"apportion_grd": [10.0, 11.0, 30.0], "torch_eager_grd": [100.0, 110.0, 300.0]},
    },
    "our_step": {"gflop_per_update": 0.5, "gflop_per_second": 45.0, "share_of_peak": 0.45},
    "environment": [{"env": "Ant-v4", "lanes": 5, "workers": 1, "steps_per_second": 2500.0}],
    "training": [{**TRAINING, "lane_steps_per_second": 30.0, "lane_updates_per_second": 30.0}],
    "updates": [ROW, LEFT_OUT],
    "memory": {"lanes": memory.table(1_000_000), "peak": {"process_bytes": 3e9, "device_bytes": None}},
}


def test_what_was_measured_before_a_stop_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(args: Any) -> Iterator[dict[str, Any]]:
        yield MEASURED
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "full", stopped)
    out = tmp_path / "speed.json"
    with pytest.raises(KeyboardInterrupt):
        speed.main(speed.Speed(out=out))
    assert json.loads(out.read_text())["cores"] == 2


def test_every_part_that_was_measured_has_a_table() -> None:
    shown = speed.shown(MEASURED)
    for text in ("| PyTorch eager, GRD+SAC | 110 | 100 to 300 | 10.00 |", "45%", "50%", "iterations/s"):
        assert text in shown


@pytest.mark.parametrize("flags", [{"methods": ("gdr",)}, {"lanes": (0,)}, {"lanes": ()}])
def test_bad_flags_name_the_fix(flags: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"unknown method 'gdr'|must be at least 1"):
        speed.Speed(**flags)


# --- Pages


def test_pages_have_what_the_results_say_and_every_table_of_the_script() -> None:
    for page in PAGES:
        text = page.read_text()
        assert text == tables.filled(text, ROOT / "results"), f"{page}: run benchmarks/tables.py"
    text = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"<!-- ([a-z\-0-9]+) -->\n", text)) - {"end"} == set(tables.TABLES)


# --- Noise on the machine hits all that is compared: repetitions are interleaved


def test_everyone_runs_once_in_each_round_and_ratios_compare_within_it() -> None:
    order: list[str] = []
    taken = timing.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}
    # A machine that slows down by ten between two rounds changes no ratio.
    assert timing.ratios([0.1, 1.0], [0.2, 2.0]) == [2.0, 2.0]


@pytest.mark.parametrize(("each", "limit", "count"), [(0.25, 1.25, 5), (60.0, 1.0, 3), (0.0, 60.0, 7)])
def test_a_run_is_repeated_until_its_time_is_spent_but_neither_once_nor_forever(
    each: float, limit: float, count: int
) -> None:
    moments = itertools.cycle([0.0, each])
    now = itertools.accumulate(moments)
    assert timing.repeated(lambda: None, limit, most=7, clock=lambda: next(now)) == [each] * count
