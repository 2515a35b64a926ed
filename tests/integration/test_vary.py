"""Lanes of one process that differ in a number of the method's state."""

import json
from pathlib import Path
from typing import Any

import pytest
from driver import GREENHOUSE, Run, apportion, arrays, assert_same_arrays, tiny, train

WEAK, STRONG = [0.0] * 5, [0.1] * 5
WINDOWS = ("--env.delay", "3-8")  # as in test_resume.py, whose program then serves here too
FLAGS = tiny("published", "--seeds", "2", *WINDOWS)


def _of_lane(run: Run, lane: int) -> dict[str, Any]:
    """All that a lane has learned."""
    return {name: array[lane] for name, array in arrays(run).items() if name.startswith("tree.")}


def test_lanes_learn_what_runs_with_their_values_learn(out: Path, tmp_path: Path) -> None:
    vary = json.dumps({"method.sparsity": [WEAK, STRONG]})
    flags = tiny("published", "--seeds", "1", "--vary", vary, "--steps", "1200", *WINDOWS)
    several = train(out, GREENHOUSE, *flags)
    assert apportion("resume", out, "--steps", "2000", "--quiet").code == 0
    weak, strong = (
        train(tmp_path / name, GREENHOUSE, *FLAGS, "--method.sparsity", *map(str, weights))
        for name, weights in (("weak", WEAK), ("strong", STRONG))
    )
    assert_same_arrays(_of_lane(several, 0), _of_lane(weak, 0))
    assert_same_arrays(_of_lane(several, 1), _of_lane(strong, 1))
    with pytest.raises(AssertionError):
        assert_same_arrays(_of_lane(weak, 1), _of_lane(strong, 1))
    shown = apportion("show", out).out
    assert f"Seed 0: method.sparsity={WEAK}" in shown
    assert f"Seed 1: method.sparsity={STRONG}" in shown


@pytest.mark.parametrize(
    ("vary", "reason"),
    [
        ("{", """--vary '{' is not JSON"""),
        ("[1]", "--vary takes one setting and a list of values"),
        ('{"method.sparsity": "x"}', "--vary takes one setting and a list of values"),
        (
            '{"method.hidden": [[4], [8]]}',
            "lanes of grd cannot differ in method.hidden (known: method.sp",
        ),
        ('{"method.sparsity": [[1, 2]]}', "method.sparsity="),
        (json.dumps({"method.sparsity": [WEAK, STRONG]}), "would do the same: edges by regression have no λ"),
        ('{"method.sparsity": []}', "method.sparsity has no value to vary over"),
    ],
)
def test_what_lanes_cannot_differ_in(vary: str, reason: str, out: Path) -> None:
    answer = apportion("train", GREENHOUSE, "--out", out, "--vary", vary)
    assert answer.code == 2
    assert reason in " ".join(answer.err.split())
    assert not out.exists()
