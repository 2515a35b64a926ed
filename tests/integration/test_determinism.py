"""A seed says all: the same one gives the same numbers, however the work is spread; another one does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import GREENHOUSE, Run, arrays, assert_same_run, records, tiny, train


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_seed_gives_the_same_run_with_any_number_of_workers(
    workers: int, greenhouse_run: Run, out: Path
) -> None:
    assert_same_run(train(out, GREENHOUSE, *tiny("grd", "--workers", str(workers))), greenhouse_run)


def test_lanes_are_seeds_and_do_not_touch_each_other(greenhouse_run: Run, out: Path) -> None:
    """Two lanes from seed 1 on are the seeds 1 and 2: the first of them is the second lane of before."""
    other = train(out, GREENHOUSE, *tiny("grd", "--seed", "1"))
    found, expected = _lane(other, 0), _lane(greenhouse_run, 1)
    assert found.keys() == expected.keys()
    for name, array in expected.items():  # the last digit may depend on a lane's place
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    first, second = _returns(greenhouse_run)
    seed_1, seed_2 = _returns(other)
    assert seed_1 == pytest.approx(second, rel=1e-3)
    assert len({*map(tuple, (first, second, seed_2))}) == 3


def _lane(run: Run, lane: int) -> dict[str, Any]:
    """One lane's arrays of the newest checkpoint: of those stacked over lanes, and its own."""
    state, own = arrays(run), f"where.{lane}."
    stacked = {name: array[lane] for name, array in state.items() if not name.startswith("where.")}
    return stacked | {name.removeprefix(own): array for name, array in state.items() if name.startswith(own)}


def _returns(run: Run) -> list[list[float]]:
    evaluations = [line["return"] for line in records(run) if line["kind"] == "eval"]
    return [list(lane) for lane in zip(*evaluations, strict=True)]


def test_overlap_is_another_training_than_strict_alternation(greenhouse_run: Run, out: Path) -> None:
    """With overlap the policy that acts is one iteration old, from the first learned one on."""
    alternating = train(out, GREENHOUSE, *tiny("grd", "--no-overlap"))
    ours, theirs = records(alternating), records(greenhouse_run)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    differing = [line["step"] for line, other in zip(ours, theirs, strict=True) if line != other]
    # Random steps until 400, where the first updates are; the chunk from 400 to 600 is the first to differ.
    assert min(differing) == 600
