"""Pictures of an episode that was played before, the same seed and the same actions once more, rendered; and
a film of them, with the reward of each step drawn under it as it is earned."""

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from apportion.core.config import UserError, check, extra
from apportion.envs.make import AnyEnv, EnvConfig, make
from apportion.envs.messages import Arrays
from apportion.training.evaluate import rewards_steps

Frame = NDArray[np.uint8]  # [H, W, 3]
SIZE = (320, 240)


class Film(NamedTuple):
    """Pictures by step: number t shows the environment when step t begins, and T how it ended."""

    frames: dict[int, Frame]
    fps: float  # steps per second that look natural


def check_renders(config: EnvConfig) -> None:
    """Complain in one line unless the environment declares that it can be rendered into pictures."""
    with contextlib.closing(make(config)[0]) as env:
        shown = "rgb_array" in (env.metadata.get("render_modes") or [])
    check(shown, f"{config.id} does not render pictures (its render_modes have no rgb_array)")


def film(
    config: EnvConfig, episode: Arrays, steps: Iterable[int] | None = None, size: tuple[int, int] = SIZE
) -> Film:
    """Pictures of some steps (by default all) of a stored episode, as large as fits into `size`."""
    check_renders(config)
    check("seed" in episode, "this episode was stored without its seed: it cannot be played again")
    length = len(episode["actions"])
    wanted = set(range(length + 1) if steps is None else steps)
    for step in sorted(wanted):
        check(0 <= step <= length, f"no step {step}: the episode has steps 0 to {length}")
    with _without_screen():
        env, _ = make(_sized(config, size), render_mode="rgb_array")
        with contextlib.closing(env):
            frames = _play_again(config.id, env, episode, wanted)
        fps = float(env.metadata.get("render_fps") or 30)
    return Film({step: fitted(frame, size) for step, frame in frames.items()}, fps)


def fitted(frame: Frame, size: tuple[int, int]) -> Frame:
    """As large as fits into (width, height), in its own proportions."""
    height, width = frame.shape[:2]
    scale = min(size[0] / width, size[1] / height)
    new = (max(1, round(width * scale)), max(1, round(height * scale)))
    if new == (width, height):
        return frame
    return np.asarray(Image.fromarray(frame).resize(new, Image.Resampling.LANCZOS))


def _play_again(env_id: str, env: AnyEnv, episode: Arrays, wanted: set[int]) -> dict[int, Frame]:
    frames = {}
    observation, _ = env.reset(seed=int(episode["seed"]))
    for step, expected in enumerate(episode["observations"]):
        if step > 0:
            observation, *_ = env.step(episode["actions"][step - 1])
        same = np.allclose(observation, expected, rtol=1e-3, atol=1e-3)  # another machine may have stored it
        fix = "the same seed and actions must lead to the same observations for it to be filmed"
        check(same, f"{env_id} did something else at step {step} than in the stored episode: {fix}")
        if step in wanted:
            frames[step] = _render(env_id, env)
    return frames


def _render(env_id: str, env: AnyEnv) -> Frame:
    try:
        picture = np.asarray(env.render())
    except Exception as error:  # drivers fail in many ways
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"{env_id} cannot be rendered on this machine ({reason}). MuJoCo without a screen needs "
            "MUJOCO_GL=egl and the system's EGL library (Debian and Ubuntu: apt install libegl1)"
        ) from error
    proper = picture.shape[2:] == (3,) and picture.dtype == np.uint8
    check(proper, f"{env_id} renders no pictures [H, W, 3] of bytes, but {picture.dtype}{picture.shape}")
    return picture


def _sized(config: EnvConfig, size: tuple[int, int]) -> EnvConfig:
    """MuJoCo's tasks draw at the size that is wanted, which saves most of their time."""
    if config.task is None:
        return config
    arguments = {"width": size[0], "height": size[1], **json.loads(config.kwargs)}
    return replace(config, kwargs=json.dumps(arguments))


@contextlib.contextmanager
def _without_screen() -> Any:
    """Let MuJoCo draw in memory where there is no screen, unless the user has chosen how."""
    screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform == "linux" and not screen:
        os.environ.setdefault("MUJOCO_GL", "egl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of OpenGL's bindings, on which nobody here can act
        yield


# --- The film


WIDTH, PICTURE, STRIP = 480, 360, 132  # pixels; all even, as the encoder wants them
FRAMES = 400  # of longer episodes, not every step is shown

_FINE = 2  # the strip is drawn larger by this, then reduced: smooth lines
_LEARNED, _TRUE = (0, 114, 178), (213, 94, 0)  # as in the figures


def check_video(path: Path, config: EnvConfig) -> None:
    """Before the work begins: can this film be made here?"""
    check(path.suffix == ".mp4", f"--video {path}: the file's name must end in .mp4")
    check(path.parent.is_dir(), f"--video {path}: there is no folder {path.parent}")
    _encoder()
    check_renders(config)


def best_lane(returns: list[float | None], lanes: list[list[Arrays]]) -> list[Arrays]:
    """The episodes of the lane with the highest return."""
    return lanes[int(np.argmax([-np.inf if each is None else each for each in returns]))]


def write_video(config: EnvConfig, episode: Arrays, path: Path) -> Path:
    """An mp4 of an episode that has `seed` and `redistributed`."""
    length = len(episode["actions"])
    stride = -(-length // FRAMES)
    played = film(config, episode, range(0, length, stride), (WIDTH, PICTURE))
    fps = float(np.clip(played.fps / stride, 5, 30))
    _encode(compose(played, episode), fps, path)
    return path


def _encode(frames: Iterator[Frame], fps: float, path: Path) -> None:
    """Pipe raw frames into ffmpeg: H.264 in the form that every browser and slide program plays."""
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{PICTURE + STRIP}", "-r", f"{fps:.6g}"]
    h264 = ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [_encoder(), "-y", "-loglevel", "error", *raw, "-i", "-", *h264, f"file:{path.resolve()}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # it stopped early: its reason is on stderr
            for frame in frames:
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
            process.stdin.close()
        reason = " ".join(process.stderr.read().decode(errors="replace").split())[-200:]
    check(process.returncode == 0, f"ffmpeg could not write {path}: {reason}")


def compose(played: Film, episode: Arrays) -> Iterator[Frame]:
    """Each picture on a dark ground, with the strip under it."""
    name = "true reward" if rewards_steps([episode]) else "paid"
    strip = Strip(episode["redistributed"], episode["true_rewards"], name)
    for step, picture in sorted(played.frames.items()):
        ground = np.full((PICTURE, WIDTH, 3), 24, np.uint8)
        top, left = (PICTURE - picture.shape[0]) // 2, (WIDTH - picture.shape[1]) // 2
        ground[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        yield np.concatenate([ground, strip.draw(step)])


class Strip:
    """Curves of the learned and the true reward that grow with the steps, on one axis."""

    def __init__(self, learned: NDArray[Any], true: NDArray[Any], name: str = "true reward") -> None:
        self.curves = {"redistributed": (learned, _LEARNED), name: (true, _TRUE)}
        values = np.concatenate([learned, true, [0.0]])
        values = values[np.isfinite(values)]
        self.low, self.high = float(values.min()), float(values.max())
        if self.low == self.high:
            self.high = self.low + 1
        self.length = len(true)
        self.font = ImageFont.load_default(12 * _FINE)

    def draw(self, step: int) -> Frame:
        """[132, 480, 3]: everything up to and including this step."""
        image = Image.new("RGB", (WIDTH * _FINE, STRIP * _FINE), (250, 250, 250))
        pen = ImageDraw.Draw(image)
        pen.line([self._at(0, 0.0), self._at(max(1, self.length - 1), 0.0)], (200, 200, 200), _FINE)
        texts = {}
        for name, (values, colour) in self.curves.items():
            points = [self._at(t, float(v)) for t, v in enumerate(values[: step + 1]) if np.isfinite(v)]
            if len(points) > 1:
                pen.line(points, colour, 2 * _FINE, joint="curve")
            if points:
                pen.circle(points[-1], 3 * _FINE, colour)
            value = float(values[step])
            texts[f"{name} {value:.{2 if abs(value) < 1000 else 0}f}"] = colour
        texts[f"step {step} of {self.length}"] = (40, 40, 40)
        for place, (text, colour) in enumerate(texts.items()):
            pen.text(((12 + 170 * place) * _FINE, 8 * _FINE), text, colour, self.font)
        return np.asarray(image.resize((WIDTH, STRIP), Image.Resampling.LANCZOS))

    def _at(self, step: int, value: float) -> tuple[float, float]:
        """Where a value is drawn, 12 pixels from the sides, 10 from the ground and 30 below the words."""
        across = step / max(1, self.length - 1)
        share = (value - self.low) / (self.high - self.low)
        return _FINE * (12 + (WIDTH - 24) * across), _FINE * (STRIP - 10 - share * (STRIP - 40))


def _encoder() -> str:
    return str(extra("imageio_ffmpeg", "videos need ffmpeg", "video").get_ffmpeg_exe())
