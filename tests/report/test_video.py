"""Films of episodes: the picture above, both rewards below, in a file that plays."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.envs.lane import Lane, play_one
from apportion.envs.make import EnvConfig
from apportion.report import video
from apportion.report.video import Film, Strip, best_lane, check_video, compose, write_video

GREENHOUSE = EnvConfig("apportion/Greenhouse-v0", max_episode_steps=4)


def episode() -> dict[str, Any]:
    lane = Lane(GREENHOUSE, 0, "tanh_noise")
    actor = {"mask": np.ones(10), "w0": np.zeros((10, 3)), "b0": np.zeros(3)}
    played = play_one(lane, {name: array.astype(np.float32) for name, array in actor.items()}, (0, 0))
    return played | {"redistributed": played["true_rewards"] + 0.1}


def test_the_film_has_a_picture_for_each_step(tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = write_video(GREENHOUSE, episode(), tmp_path / "odd name: 100%.mp4")
    # imageio_ffmpeg's own reader forks, which JAX minds; ffmpeg itself says what it reads.
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", f"file:{path}", "-f", "null", "-"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "Video: h264" in said
    assert "480x492" in said
    assert "8 fps" in said
    assert re.findall(r"frame=\s*(\d+)", said)[-1] == "4"


def test_long_episodes_are_thinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = {}

    def keep(frames: Any, fps: float, path: Path) -> None:
        seen.update(count=len(list(frames)), fps=fps)

    monkeypatch.setattr(video, "FRAMES", 2)
    monkeypatch.setattr(video, "_encode", keep)
    write_video(GREENHOUSE, episode(), tmp_path / "film.mp4")
    assert seen == {"count": 2, "fps": 5.0}  # 8 steps a second, every second one shown, at least 5 pictures


def test_curves_grow_with_the_steps() -> None:
    strip = Strip(np.linspace(0, 1, 50), np.linspace(1, 0, 50))
    frames = [strip.draw(step) for step in (0, 20, 49)]
    assert all((frame.shape, frame.dtype) == ((132, 480, 3), np.uint8) for frame in frames)
    inked = [(frame[32:].min(axis=2) < 100).sum() for frame in frames]
    assert inked == sorted(inked)
    assert inked[0] < inked[1] < inked[2]


@pytest.mark.parametrize(
    ("learned", "true"),
    [([0.0], [0.0]), ([np.nan, 1.0], [2.0, 2.0]), ([np.nan], [np.nan]), ([1e9, -1e9], [0.0, np.inf])],
    ids=["one step of nothing", "NaN", "NaN only", "huge"],
)
def test_rewards_of_every_kind_can_be_drawn(learned: list[float], true: list[float]) -> None:
    strip = Strip(np.array(learned), np.array(true))
    assert strip.draw(len(true) - 1).shape == (132, 480, 3)


def test_pictures_of_other_proportions_stand_in_the_middle() -> None:
    tall = np.full((360, 100, 3), 200, np.uint8)
    rewards = {"redistributed": np.zeros(1), "true_rewards": np.zeros(1)}
    [frame] = compose(Film({0: tall}, 30), rewards)
    assert frame.shape == (492, 480, 3)
    assert (frame[:360, 190:290] == 200).all()
    assert (frame[:360, :190] == 24).all()


def test_the_best_seed_is_filmed() -> None:
    lanes: Any = [["a"], ["b"], ["c"]]
    assert best_lane([1.0, 3.0, None], lanes) == ["b"]
    assert best_lane([None, None, None], lanes) == ["a"]


def test_what_cannot_be_filmed_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, message in (
        (tmp_path / "film.avi", "must end in .mp4"),
        (tmp_path / "no/film.mp4", "no folder"),
    ):
        with pytest.raises(UserError, match=message):
            check_video(path, GREENHOUSE)
    with pytest.raises(UserError, match="does not render pictures"):
        check_video(tmp_path / "film.mp4", EnvConfig("apportion/Factored-v0"))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it could not be imported
    with pytest.raises(UserError, match=r"pip install 'apportion\[video\]'"):
        check_video(tmp_path / "film.mp4", GREENHOUSE)


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    with pytest.raises(UserError, match="ffmpeg could not write"):
        write_video(GREENHOUSE, episode(), tmp_path / "gone" / "film.mp4")
