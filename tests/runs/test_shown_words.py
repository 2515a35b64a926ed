"""What `apportion show` says below its table of scores."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from apportion.cli import display
from apportion.runs.summary import summarise, unlearned_in_words
from synthetic_runs import Recipe, make_run


def _shown(data: dict[str, Any]) -> str:
    out = io.StringIO()
    display.summary(Console(file=out, width=200), data)
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize("graph", [True, False])
def test_rewards_that_miss_what_was_paid_are_told_of_with_and_without_a_graph(
    tmp_path: Path, graph: bool
) -> None:
    data = summarise(make_run(tmp_path / "run", Recipe(graph=graph, lanes=1)))
    assert "Learned rewards miss" not in _shown(data)
    missed = _shown(data | {"return_error_per_lane": [3.0]})
    assert missed.count("Learned rewards miss what the last evaluation's episodes paid") == 1
    assert ("nor on the graph" in missed) == graph


def test_a_constant_s_error_stands_beside_the_return_error(tmp_path: Path) -> None:
    data = summarise(make_run(tmp_path / "run", Recipe(lanes=1)))
    small = {"return_error_per_lane": [0.029], "constant_error_per_lane": [2e-5]}
    assert "return error ┃ of a constant" in _shown(data | small)
    assert "0.029 │ 2.00e-05" in _shown(data | small)
    older = data | {"constant_error_per_lane": [None]}
    assert "of a constant" not in _shown(older)


def test_a_training_that_ends_in_its_warm_up_has_learned_nothing(tmp_path: Path) -> None:
    data = summarise(make_run(tmp_path / "run", Recipe(lanes=1)))
    assert data["learned"]
    assert unlearned_in_words(data) == []
    asked = {"learned": False, "steps": [400, 500], "config": {"schedule": {"warmup_steps": 2000}}}
    [said] = unlearned_in_words(data | asked)
    assert said.startswith("Nothing was learned by step 500: ")
    assert "warm-up, at step 2,000 (--warmup-steps)" in said
    [said] = unlearned_in_words(data | asked | {"config": {"schedule": {"warmup_steps": 100}}})
    assert "no episode was paid early enough" in said
    untaught = make_run(tmp_path / "other", Recipe(lanes=1, train_lines=0))
    assert "Nothing was learned by step 50,000" in _shown(summarise(untaught))
    assert unlearned_in_words(data | asked | {"data": {}}) == []  # a fit has words of its own
