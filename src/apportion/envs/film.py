"""Pictures of an episode that was played before: the same seed and the same actions once more, rendered."""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.envs.make import AnyEnv, EnvConfig, make
from apportion.envs.messages import Arrays

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
    from PIL import Image

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
