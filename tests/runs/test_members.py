"""Runs whose lanes differ in a setting: read back as one run for each value."""

from pathlib import Path

import pytest

from apportion.core.errors import UserError
from apportion.report.comparison.reading import read_curves
from apportion.runs.members import in_words, members
from synthetic_runs import Recipe, make_run

VARIED = {"setting": "sparsity", "values": [[0.0, 1.0], [2.0, 3.0]]}
CONFIG = {"method": {"name": "grd", "sparsity": [9.0, 9.0]}, "seed": 4, "lanes": 6, "varied": VARIED}


def test_each_value_has_its_own_lanes_and_seeds() -> None:
    first, second = members(CONFIG)
    assert (first.lanes, second.lanes) == (slice(0, 3), slice(3, 6))
    assert (first.config["seed"], second.config["seed"]) == (4, 7)
    assert second.config["method"] == {"name": "grd", "sparsity": (2.0, 3.0)}
    assert second.config["lanes"] == 3
    entry = {"step": 5, "return": [0, 1, 2, 3, 4, 5], "seconds": 1.5, "stored": ["edges"]}
    assert second.of([entry]) == [{"step": 5, "return": [3, 4, 5], "seconds": 1.5, "stored": ["edges"]}]
    assert in_words(CONFIG) == [
        "Seeds 4 to 6: method.sparsity=[0.0, 1.0]",
        "Seeds 7 to 9: method.sparsity=[2.0, 3.0]",
    ]


def test_a_run_of_one_value_is_itself() -> None:
    plain = {name: value for name, value in CONFIG.items() if name != "varied"}
    [only] = members(plain)
    assert only.config is plain
    assert only.of([{"return": [1]}]) == [{"return": [1]}]
    assert in_words(plain) == []


@pytest.mark.parametrize(
    ("varied", "reason"),
    [
        (
            {"setting": "sparsity", "values": [1, 2, 3, 4]},
            "6 lanes do not divide over 4 values of method.sparsity",
        ),
        ({"setting": "sparsity", "values": 3}, "varied.values=3 must be a list"),
        ({"setting": "sparsity"}, "varied.values is missing"),
        ({"setting": "sparsity", "values": []}, "method.sparsity has no value to vary over: give it some"),
    ],
)
def test_a_damaged_config_is_named(varied: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="^" + reason):
        members({**CONFIG, "varied": varied})
    run = make_run(tmp_path / "run", Recipe(lanes=6, varied=varied))
    with pytest.raises(UserError, match=rf"^{run.config} is damaged \({reason}"):
        run.read_config()


def test_compare_takes_each_value_for_a_run_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path / "several", Recipe(lanes=6, varied=VARIED))
    curves, notes = read_curves([tmp_path])
    assert notes == []
    assert [(curve.label, curve.seed) for curve in curves] == [
        *(("grd · method.sparsity=[0.0, 1.0]", seed) for seed in (5, 6, 7)),
        *(("grd · method.sparsity=[2.0, 3.0]", seed) for seed in (8, 9, 10)),
    ]
    last = run.read_metrics()[-1]["return"]
    assert [curve.scores["return"][-1] for curve in curves] == pytest.approx(last)
