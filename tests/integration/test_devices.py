"""Lanes on several devices: the same training, whatever number of devices share it."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

from apportion.training import devices
from driver import GREENHOUSE, Run, apart, arrays, records, tiny, train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("lanes", "there", "used"),
    [(1, 8, 1), (5, 8, 5), (8, 8, 8), (20, 8, 5), (16, 8, 8), (7, 4, 1), (6, 1, 1)],
)
def test_devices_take_equally_many_lanes(
    lanes: int, there: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: there)
    assert devices.used_by(lanes) == used


def test_idle_devices_are_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    assert devices.advice(4) is devices.advice(3) is devices.advice(12) is None
    assert devices.advice(7) == "7 lanes do not divide over 4 devices: 1 used. With 8, all would be."


@pytest.mark.parametrize(
    ("backend", "flags", "chosen"),
    [
        ("cpu", "", False),
        ("gpu", "", True),
        ("gpu", "--xla_gpu_enable_command_buffer=FUSION", False),  # by the user
    ],
)
def test_a_gpu_runs_loops_by_itself_unless_its_user_wants_otherwise(
    backend: str, flags: str, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setenv("XLA_FLAGS", flags)
    options = devices._loops_in_graphs.__wrapped__()
    assert ("WHILE" in options.get("xla_gpu_enable_command_buffer", "")) == chosen


def test_an_xla_that_does_not_know_its_options_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(devices, "_ALSO_LOOPS", "FUSION,SOMETHING_OF_THE_FUTURE")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert devices._loops_in_graphs.__wrapped__() == {}


# GRD finds its edges in closed form: what it takes from a lane and puts back passes the devices, too.
FLAGS = tiny("grd", "--seeds", "4", "--method.hidden", "4", "--backbone.hidden", "4")


def on_devices(count: int, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    """Run a command in a process that has so many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", flags)
        process = apart(*words)
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_a_training_is_the_same_on_eight_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = train(tmp_path / "alone", GREENHOUSE, *FLAGS)
    split = tmp_path / "split"
    on_devices(8, monkeypatch, "train", GREENHOUSE, "--out", split, *FLAGS, "--steps", "1200")
    # Stopped on eight, continued on two: a checkpoint knows nothing of devices.
    on_devices(2, monkeypatch, "resume", split, "--steps", "2000", "--quiet")

    found, expected = arrays(Run(split)), arrays(alone)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":  # shapes differ with the devices, and with them the order of sums
            np.testing.assert_allclose(found[name], array, rtol=2e-2, atol=2e-3, err_msg=name)
    assert [line["step"] for line in records(Run(split))] == [line["step"] for line in records(alone)]
