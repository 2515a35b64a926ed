"""What explained lanes come to: those that diverged are left out, and said to be."""

from typing import Any

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.runs.explaining import Selection, _over_lanes

NAMES = ["height", "push"]


def lane(mean: list[float], absolute: list[float], undecided: Any = None) -> dict[str, Any]:
    players, error = np.array([True, False]), np.array([0.3, 0.4])
    return {
        "mean": np.array(mean),
        "mean_absolute": np.array(absolute),
        "sampling_error": error,
        "interval": None,
        "players": players,
        "undecided": undecided,
        "denied": None if undecided is None else ~undecided,
    }


def test_lanes_are_averaged_doubts_are_counted_and_the_most_important_comes_first() -> None:
    push, height = _over_lanes([lane([1.0, 2.0], [1.0, 3.0]), lane([3.0, 2.0], [1.0, 3.0])], NAMES)
    assert (push["name"], push["index"], push["lanes"], push["share"]) == ("push", 1, 0, 0.75)
    assert (height["mean"], height["lanes"]) == (2.0, 2)
    assert height["between_lanes"] == pytest.approx(1.0)  # the standard error of 1 and 3
    assert height["sampling_error"] == pytest.approx(0.3 / np.sqrt(2))
    asked = [lane([1.0, 0.0], [1.0, 0.0], np.array(each)) for each in ([True, True], [False, True])]
    for doubt in ("undecided", "denied"):
        assert [row[doubt] for row in _over_lanes(asked, NAMES)] == [1, 0]
        assert [row[doubt] for row in _over_lanes([lane([1.0, 0.0], [1.0, 0.0])], NAMES)] == [None, None]


def test_a_lane_that_diverged_is_left_out_and_what_never_moves_has_no_share() -> None:
    lost, good = lane([np.nan, 1.0], [np.nan, 1.0]), lane([1.0, 0.0], [1.0, 0.0])
    [height, push] = _over_lanes([lost, good], NAMES)
    assert (height["mean"], push["mean"], height["between_lanes"]) == (1.0, 0.0, None)
    nothing = _over_lanes([lost], NAMES)
    assert [(row["name"], row["share"], row["lanes"]) for row in nothing] == [
        (name, None, 0) for name in NAMES
    ]
    still = lane([0.0, 0.0], [0.0, 0.0])
    assert [row["share"] for row in _over_lanes([still, still], NAMES)] == [0.0, 0.0]


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"lane": (0, -2)}, {"step": (-1,)}])
def test_what_cannot_be_chosen_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must not be negative"):
        Selection(**wrong)
