"""Episodes that somebody else's trainer plays: what comes in step by step, and what is refused."""

from typing import Any

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.training.learner import Unfinished

FINE = np.zeros(3, np.float32)
BROKEN = np.array([0, np.nan, np.inf], np.float32)


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ((BROKEN, [0.0], FINE, 0.0), "an observation .* has nan in dimension 1: give its last good number"),
        ((FINE, [0.0], BROKEN, 0.0), "an observation .* has nan in dimension 1: give its last good number"),
        ((FINE, [0.0], FINE, np.nan), r"a reward .* is nan: give finite numbers up to 1e\+15"),
        ((FINE, [0.0], FINE, -np.inf), r"a reward .* is -inf: give finite numbers up to 1e\+15"),
    ],
)
def test_what_no_method_can_learn_from_is_refused(step: tuple[Any, ...], complaint: str) -> None:
    unfinished = Unfinished(5)
    with pytest.raises(UserError, match=complaint):
        unfinished.step(*step, {})
    assert not unfinished.steps


def test_one_step_is_an_episode() -> None:
    unfinished = Unfinished(1)
    unfinished.step(FINE, [0.5], FINE + 1, -1000.0, {})
    episode = unfinished.end(terminated=False)
    assert (episode["observations"].shape, episode["paid"].tolist()) == ((2, 3), [-1000.0])
    assert episode["segment_end"].tolist() == [True]
