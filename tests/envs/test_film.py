"""Pictures of stored episodes: the same episode again, or a clear word why not."""

from typing import Any

import numpy as np
import pytest
from actors import actor

from apportion.core.config import UserError
from apportion.envs.greenhouse_picture import draw
from apportion.envs.lane import Lane, play_one
from apportion.envs.make import EnvConfig
from apportion.report.video import film, fitted

GREENHOUSE = EnvConfig("apportion/Greenhouse-v0", max_episode_steps=5)


def played(config: EnvConfig = GREENHOUSE) -> dict[str, Any]:
    """A stored episode, as evaluations leave it."""
    lane = Lane(config, 3, "tanh_gaussian")
    return play_one(lane, actor(lane.spec.observation_size, lane.spec.action_size), (0, 0))


def test_every_step_has_its_picture_and_so_has_the_end() -> None:
    episode = played()
    whole, some = film(GREENHOUSE, episode), film(GREENHOUSE, episode, [4, 2]).frames
    assert list(whole.frames) == [0, 1, 2, 3, 4, 5]
    assert whole.fps == 8
    for frame in whole.frames.values():
        assert (frame.shape, frame.dtype) == ((240, 320, 3), np.uint8)
    assert not np.array_equal(whole.frames[0], whole.frames[1])
    assert sorted(some) == [2, 4]
    for step, frame in some.items():
        np.testing.assert_array_equal(frame, whole.frames[step])


def test_pictures_are_as_large_as_fits() -> None:
    found = film(GREENHOUSE, played(), [0], (160, 400))
    assert found.frames[0].shape == (120, 160, 3)
    assert fitted(np.zeros((100, 10, 3), np.uint8), (320, 240)).shape == (240, 24, 3)
    assert fitted(np.zeros((1, 4000, 3), np.uint8), (320, 240)).shape == (1, 320, 3)


def test_another_episode_than_the_stored_one_is_noticed_and_so_are_steps_that_are_not_there() -> None:
    episode = played()
    with pytest.raises(UserError, match="something else at step 0"):
        film(GREENHOUSE, {**episode, "seed": episode["seed"] + 1})
    with pytest.raises(UserError, match="something else at step 1"):
        film(GREENHOUSE, {**episode, "actions": -episode["actions"]})
    with pytest.raises(UserError, match="no step 6: the episode has steps 0 to 5"):
        film(GREENHOUSE, episode, [0, 6])


def _fails(self: Any) -> None:
    raise RuntimeError("no display\nnor any other")


@pytest.mark.parametrize(
    ("render", "said"),
    [
        (_fails, r"^apportion/Greenhouse-v0 cannot be rendered .*RuntimeError: no display nor any.*libegl1"),
        (lambda self: np.zeros((4, 4)), r"renders no pictures \[H, W, 3\] of bytes, but float64\(4, 4\)$"),
    ],
)
def test_a_driver_that_fails_is_one_line(render: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apportion.envs.greenhouse.Greenhouse.render", render)
    with pytest.raises(UserError, match=said):
        film(GREENHOUSE, played())


def test_mujoco_draws_without_a_screen() -> None:
    """In memory, by software if need be; where the system has no EGL, there is nothing to test."""
    config = EnvConfig("HalfCheetah-v4", max_episode_steps=2)
    try:
        found = film(config, played(config), [2], (64, 48))
    except UserError as error:
        if "libegl1" not in str(error):
            raise
        pytest.skip(str(error))
    assert found.frames[2].shape == (48, 64, 3)
    assert found.frames[2].std() > 5


# --- The greenhouse's picture


GAUGES = dict.fromkeys(
    ("temperature", "moisture", "light", "co2", "leaf mass", "outside temperature", "sunlight"), 0.0
)
LEVERS = {"heater": 0.0, "valve": 0.0, "shade": 0.0}


def test_the_picture_shows_what_changes() -> None:
    pictures = [draw(GAUGES, LEVERS, 3.0)]
    pictures += [draw(GAUGES | {name: 0.8}, LEVERS, 3.0) for name in ("sunlight", "moisture", "leaf mass")]
    pictures += [draw(GAUGES, LEVERS | {name: 0.8}, 3.0) for name in LEVERS]
    assert len({picture.tobytes() for picture in pictures}) == 7


def test_tomatoes_ripen_with_the_harvest() -> None:
    def red(harvest: float) -> int:
        picture = draw(GAUGES, LEVERS | {"heater": -1.0}, harvest).astype(int)
        return int(((picture[..., 0] > 180) & (picture[..., 1] < 90)).sum())

    assert red(-5.0) == red(0.0) == 0
    assert red(0.0) < red(10.0) < red(30.0)
    assert red(30.0) <= red(1000.0) == red(2000.0)
