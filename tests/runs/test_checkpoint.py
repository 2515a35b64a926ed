"""Checkpoints come back as they were, and no crash, full disk or damaged file costs more than the newest."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.runs import checkpoint
from apportion.runs.atomic import drop_after, read_arrays, write_arrays
from apportion.runs.checkpoint import Best, better
from apportion.training.agent import AgentState
from apportion.training.evaluate import Evaluation, Report
from disks import small_files


class Pair(NamedTuple):
    left: Any
    right: Any


def small(value: float) -> dict[str, Any]:
    return {"weights": np.full((4, 3), value, np.float32)}


def value_of(tree: Any) -> float:
    return float(tree["weights"][0, 0])


def assert_same(found: Any, expected: Any) -> None:
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(expected))
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        want = np.asarray(want)
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


ODD = {
    "module": eqx.nn.Linear(3, 2, key=jax.random.key(0)),
    "pair": Pair(np.array([True, False]), (jnp.arange(4), None, [np.float32(1.5)])),
    "scalars": {"int": jnp.int32(7), "bool": np.array(True), "python": 3, "float": 0.25},
    "empty": np.zeros((0, 5), np.float32),
    "small": np.arange(3, dtype=np.uint8),
    "half": jnp.ones(3, jnp.float16),
    "brain": jnp.ones(3, jnp.bfloat16),
    "wide": np.arange(3, dtype=np.uint64),
    "nan": np.array([np.nan, np.inf], np.float32),
}


def test_odd_trees_come_back_as_they_were(tmp_path: Path) -> None:
    """Into a template of arrays or shapes, in part, or by dotted path without any, to be written to."""
    path = checkpoint.save(tmp_path, 20_000, ODD, {"best": -np.inf, "n": np.int32(3), "name": "µ"}, keep=1)
    loaded = checkpoint.load(tmp_path, ODD)
    assert path.name == "step_000000020000.safetensors"
    assert loaded.step == 20_000
    assert loaded.meta == {"best": None, "n": 3, "name": "µ"}
    assert loaded.skipped == []
    assert_same(loaded.tree, ODD)
    template = jax.eval_shape(lambda: ODD["module"])
    assert_same(checkpoint.load(tmp_path, {"module": template}).tree, {"module": ODD["module"]})
    bare = checkpoint.load(tmp_path).tree
    assert {"module.weight", "pair.left", "pair.right.0", "scalars.int"} <= set(bare)
    loaded.tree["nan"][:] = 2
    checkpoint.save(tmp_path, 20_000, jnp.arange(3), {}, keep=1)  # the same step is replaced
    assert_same(checkpoint.load(tmp_path, jnp.zeros(3, jnp.int32)).tree, jnp.arange(3))
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000020000.safetensors"]


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_random_keys_come_back_as_keys(tmp_path: Path, kind: str) -> None:
    keys = jax.random.split(jax.random.key(3, impl=kind), 2)
    checkpoint.save(tmp_path, 1, {"keys": keys}, {}, keep=1)
    found = checkpoint.load(tmp_path, jax.eval_shape(lambda: {"keys": keys})).tree["keys"]
    assert found.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(keys))


@pytest.mark.parametrize(
    "view",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::2],
        np.arange(12)[::-1],
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.broadcast_to(np.float32(2), (3, 2)),
        np.arange(3, dtype=">i4"),
    ],
    ids=["transposed", "strided", "reversed", "fortran", "broadcast", "big-endian"],
)
def test_arrays_that_do_not_lie_in_order_come_back_in_order(tmp_path: Path, view: np.ndarray) -> None:
    checkpoint.save(tmp_path, 1, {"same": view}, {}, keep=1)
    loaded = checkpoint.load(tmp_path)
    assert list(loaded.tree) == ["same"]
    np.testing.assert_array_equal(loaded.tree["same"], view)


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        ({"activation": jax.nn.relu}, TypeError),
        ({"name": "text"}, TypeError),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, ValueError),
    ],
)
def test_trees_that_cannot_be_saved_are_refused(tmp_path: Path, tree: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        checkpoint.save(tmp_path, 1, tree, {}, keep=1)
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_are_kept_and_whoever_may_read_other_files_reads_them(tmp_path: Path) -> None:
    for step in (100, 200, 1000, 3000):
        path = checkpoint.save(tmp_path, step, small(step), {}, keep=2)
    assert checkpoint.steps(tmp_path) == [1000, 3000]
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


# Crashes


def fail(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["apportion.runs.atomic.save_file", "os.fsync", "os.replace"])
def test_a_full_disk_leaves_the_previous_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    checkpoint.save(tmp_path, 100, small(1), {}, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, 200, small(2), {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000100.safetensors"]
    assert value_of(checkpoint.load(tmp_path, small(0)).tree) == 1


def test_safetensors_own_error_is_an_oserror(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 100, small(1), {}, keep=1)
    with small_files(100_000), pytest.raises(OSError, match="File too large"):
        checkpoint.save(tmp_path, 200, {"weights": np.ones(100_000)}, {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000100.safetensors"]


KILLED = """
import sys
from pathlib import Path
import numpy as np
from apportion.runs import atomic, checkpoint

def stall(arrays, path, metadata):
    path.write_bytes(b"half of it")
    print("writing", flush=True)
    sys.stdin.read()

checkpoint.save(Path(sys.argv[1]), 100, {"weights": np.ones((4, 3), np.float32)}, {}, keep=1)
atomic.save_file = stall
checkpoint.save(Path(sys.argv[1]), 200, {"weights": np.ones((4, 3), np.float32)}, {}, keep=1)
"""


def test_a_killed_writer_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(signal.SIGKILL)
    loaded = checkpoint.load(tmp_path, small(0))
    assert (loaded.step, loaded.skipped) == (100, [])
    assert len(list(tmp_path.glob(".step_*"))) == 1
    drop_after(tmp_path, 100)  # as every resume does
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000100.safetensors"]


# Damage


def truncate(path: Path) -> None:
    os.truncate(path, 60)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"ever", b"late"))


def neighbour(path: Path) -> None:
    path.write_bytes(path.with_name("step_000000000100.safetensors").read_bytes())


def of_arrays(path: Path) -> None:
    write_arrays(path, small(1))


def newer_format(path: Path) -> None:
    arrays, note = read_arrays(path)
    write_arrays(path, arrays, note | {"format": 99})


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (truncate, "its content is no array"),
    (flip, "its checksum differs"),
    (empty, "its content is no array"),
    (link, "it is a link"),
    (edited, "its checksum differs"),
    (neighbour, "its content is that of another file"),
    (of_arrays, "its format is None"),
    (newer_format, "its format is 99"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_a_damaged_checkpoint_falls_back_and_says_why(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    checkpoint.save(tmp_path, 100, small(1), {}, keep=2)
    damage(checkpoint.save(tmp_path, 200, small(2), {"name": "ever"}, keep=2))
    loaded = checkpoint.load(tmp_path, small(0))
    assert (loaded.step, value_of(loaded.tree)) == (100, 1)
    assert len(loaded.skipped) == 1
    assert loaded.skipped[0].startswith(f"checkpoint step_000000000200 skipped: {reason}")
    assert checkpoint.load(tmp_path).step == 100


def test_checkpoints_that_were_passed_over_are_kept_under_another_name(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 100, small(1), {}, keep=1)
    for count in ("", "_2"):
        flip(checkpoint.save(tmp_path, 200, small(2), {}, keep=2))
        aside = tmp_path / f"damaged_step_000000000200{count}.safetensors"
        (note,) = checkpoint.set_aside(tmp_path, after=100)
        name = "step_000000000200.safetensors"
        assert note == f"{name} is kept as {aside}: delete it when you do not need it"
        assert aside.exists()
    assert checkpoint.steps(tmp_path) == [100]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ({"weights": np.zeros((4, 4), np.float32)}, r"weights is float32\[4, 3\], .* float32\[4, 4\]"),
        ({"weights": np.zeros((4, 3), np.int32)}, r"weights is float32\[4, 3\], .* int32\[4, 3\]"),
        ({"weights": np.zeros((4, 3), np.float32), "bias": np.zeros(1)}, "bias is missing: another version"),
    ],
)
def test_another_shape_type_or_name_is_refused(tmp_path: Path, template: Any, reason: str) -> None:
    checkpoint.save(tmp_path, 100, small(1), {}, keep=1)
    with pytest.raises(UserError, match=reason) as caught:
        checkpoint.load(tmp_path, template)
    assert "\n" not in str(caught.value)


def test_without_a_valid_checkpoint_every_reason_is_named(tmp_path: Path) -> None:
    for step, damage in ((100, flip), (200, empty)):
        damage(checkpoint.save(tmp_path, step, small(1), {}, keep=2))
    with pytest.raises(UserError, match=r"000200 skipped: .* no array; .*000100 skipped: .* differs"):
        checkpoint.load(tmp_path, small(0))


@pytest.mark.parametrize("name", ["", "absent"])
def test_no_checkpoint_at_all(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="no checkpoint in"):
        checkpoint.load(tmp_path / name, small(0))


# --- Each lane's best agent: by return, the first of equals, never one without a number


NAN = float("nan")


def _report(step: int, *returns: float) -> Report:
    """An agent that consists of the step."""
    scores: NDArray[np.float64] = np.array(returns)
    evaluation = Evaluation(scores, *[scores] * 7, step_rewards=scores > 0, episodes=[])
    agent = AgentState(np.full((len(returns), 3), step), np.full(len(returns), step), scaling=None)
    return Report(step, evaluation, {}, agent, np.isnan(scores))


def _best(*reports: Report) -> Best:
    found = None
    for report in reports:
        found = better(found, report)
    assert found is not None
    return found


def test_each_lane_has_its_best_at_a_step_of_its_own_and_no_return_without_a_number_is_best() -> None:
    best = _best(_report(10, 1.0, 5.0), _report(20, 3.0, 4.0), _report(30, 2.0, 5.0))
    assert (best.steps.tolist(), best.returns.tolist()) == ([20, 10], [3.0, 5.0])
    assert best.agent.method.tolist() == [[20] * 3, [10] * 3]
    assert best.agent.backbone.tolist() == [20, 10]
    best = _best(_report(10, NAN, 1.0), _report(20, -7.0, NAN), _report(30, NAN, NAN))
    assert (best.steps.tolist(), best.returns.tolist()) == ([20, 10], [-7.0, 1.0])
