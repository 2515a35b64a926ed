"""A run folder is made once, read back whole, and written by one process at a time."""

import errno
import json
import os
import signal
import subprocess
import sys
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion import __version__
from apportion.core.config import UserError
from apportion.core.spec import Graph, Spec
from apportion.runs.atomic import plain, write_json
from apportion.runs.folder import PACKAGES, Episode, RunFolder, default_path, read_json, versions

GRAPH = Graph(np.array([1, 0]), np.array([1]), np.eye(2), np.ones((1, 2)))
SPEC = Spec("Greenhouse-v0", ("heat", "light"), ("vent",), 50, 10, GRAPH)
CONFIG = {
    "env": {"id": "Greenhouse-v0"},
    "method": {"name": "grd"},
    "backbone": {"name": "sac", "hidden": (8, 8)},
    "schedule": {"steps": 100},
    "seed": 3,
    "lanes": 2,
}
MASK = {"policy_mask": np.ones((2, 2))}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG, SPEC)


def test_a_new_run_is_read_back_and_damaged_json_is_named(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again == run
    assert again.read_config() == CONFIG | {"backbone": {"name": "sac", "hidden": [8, 8]}}
    assert again.read_spec().to_dict() == SPEC.to_dict()
    assert read_json(run.versions)["numpy"] == np.__version__
    assert all(folder.is_dir() for folder in (run.edges, run.episodes, run.checkpoints, run.tensorboard))
    run.config.write_text("{")
    with pytest.raises(UserError, match=r"config.json is damaged"):
        run.read_config()


def test_an_existing_run_is_not_overwritten(run: RunFolder) -> None:
    exists = f"run folder {run.path} exists: choose another --out, or "
    with pytest.raises(UserError) as caught:
        RunFolder.create(run.path, {}, SPEC)
    assert str(caught.value) == f"{exists}delete it"  # there is nothing yet to resume from
    (run.checkpoints / "step_000000000100").mkdir()
    with pytest.raises(UserError) as caught:
        RunFolder.create(run.path, {}, SPEC)
    assert str(caught.value) == f"{exists}continue it with `apportion resume {run.path}`"
    assert run.read_config()["seed"] == 3


def test_an_empty_folder_will_do_but_a_file_will_not(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, {}, SPEC)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="exists"):
        RunFolder.create(tmp_path / "file", {}, SPEC)


@pytest.mark.parametrize("name", ["", "absent"])
def test_what_is_not_a_run_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is not a run folder \(it has no config.json\)"):
        RunFolder.open(tmp_path / name)


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    write_json(path, {"state": "running"})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"state": "finished"})
    assert read_json(path) == {"state": "running"}
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]


def test_json_holds_numpy_and_no_nan(tmp_path: Path) -> None:
    data = {"a": np.float32(0.5), "b": np.array([1.0, np.nan]), "c": float("-inf"), "d": Path("x"), 1: True}
    write_json(tmp_path / "x.json", data)
    strict = json.loads((tmp_path / "x.json").read_text(), parse_constant=pytest.fail)
    del strict["checksum"]
    assert strict == {"a": 0.5, "b": [1.0, None], "c": None, "d": "x", "1": True}
    with pytest.raises(TypeError, match="cannot write object"):
        plain(object())


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any repository, without what people have set for git."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as inside a hook of this one
        monkeypatch.delenv(name)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):  # some people sign commits, or hide new files
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


@pytest.mark.usefixtures("elsewhere")
def test_versions_say_where_the_run_ran_and_on_which_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = versions()
    assert set(found) == {"apportion", *PACKAGES, "python", "platform", "devices", "commit", "dirty"}
    assert found["devices"]
    assert found["apportion"] == __version__
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "--no-verify", "-m", "x"]):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    clean = versions()
    (tmp_path / "new").touch()
    assert len(clean["commit"]) == 40
    assert (clean["dirty"], versions()["dirty"]) == (False, True)
    monkeypatch.setenv("PATH", "")  # without git
    assert versions()["commit"] is None


def test_default_paths_are_clean_and_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Frozen":
            return cls(2026, 11, 15)

    monkeypatch.setattr("apportion.runs.folder.datetime", Frozen)
    names = []
    for env_id in ("apportion/E-v0", "apportion/E-v0", "E-v0", "my.module:Odd Env/x-v1"):
        path = default_path(env_id, "grd", tmp_path)
        assert path.parent == tmp_path
        path.mkdir()
        names.append(path.name.removesuffix("-20261115-000000"))
    later = [f"e-v0-grd-20261115-000000-{number}" for number in (2, 3)]
    assert names == ["e-v0-grd", *later, "my.module-odd-env-x-v1-grd"]


def test_edges_over_time(run: RunFolder) -> None:
    steps, edges = run.read_edges()
    assert (steps.shape, edges) == ((0,), {})
    for step in (2000, 100, 30_000):
        blocks = {"state_to_reward": np.full((2, 2), step / 1e5), "action_to_reward": np.ones((1, 2)).T}
        run.write_edges(step, blocks | MASK)
    steps, edges = run.read_edges()
    assert steps.tolist() == [100, 2000, 30_000]
    assert edges["state_to_reward"].shape == (3, 2, 2)
    np.testing.assert_allclose(edges["state_to_reward"][:, 0, 0], [0.001, 0.02, 0.3], rtol=1e-3)


def test_episodes_come_back_by_lane(run: RunFolder) -> None:
    lanes: list[list[Episode]] = [[_episode(3), _episode(11)], [_episode(5)] * 11]
    run.write_episodes(500, lanes)
    found = run.read_episodes(500)
    assert [[sorted(each) for each in lane] for lane in found] == [
        [sorted(e) for e in lane] for lane in lanes
    ]
    np.testing.assert_array_equal(found[1][10]["true.rewards"], np.arange(5.0))
    assert run.episode_steps() == [500]
    with pytest.raises(UserError, match=r"no episodes at step 7 .* choose from \[500\]"):
        run.read_episodes(7)


def _episode(length: int) -> Episode:
    return {
        "observations": np.ones((length + 1, 2), np.float32),
        "actions": np.zeros((length, 1), np.float32),
        "true_rewards": np.zeros(length),
        "true.rewards": np.arange(float(length)),
        "redistributed": np.zeros(length),
        "segment_end": np.zeros(length, bool),
    }


def test_a_resume_drops_later_snapshots_and_torn_files(run: RunFolder) -> None:
    for step in (100, 200, 300):
        run.write_edges(step, MASK)
        run.write_episodes(step, [[], []])
    (run.edges / f".step_000000000300.safetensors.{'0f' * 8}.tmp").touch()
    (run.edges / ".mine").mkdir()
    run.truncate_after(200)
    assert run.read_edges()[0].tolist() == run.episode_steps() == [100, 200]
    assert [path.name for path in run.edges.glob(".*")] == [".mine"]  # it was refused for ever


HOLD = """
import sys
from pathlib import Path
from apportion.runs.folder import RunFolder
with RunFolder.open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_living_writer_keeps_others_out_and_a_killed_one_does_not(run: RunFolder) -> None:
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"is being written by process {holder.pid}"), run.lock():
            pass
        holder.send_signal(signal.SIGKILL)
    with run.lock():
        assert (run.path / ".lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_is_free_again_after_an_error(run: RunFolder) -> None:
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    (run.path / ".lock").write_text("999999999\n")  # left by a dead process
    with run.lock(), pytest.raises(UserError, match=f"process {os.getpid()}"), run.lock():
        pass


def test_a_disk_without_locks_is_used_without(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with run.lock():
        pass
