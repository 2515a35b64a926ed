"""A stranger's folder is inert, and nothing changes or is lost without a word: a test for each promise of
SECURITY.md."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.core import files
from apportion.core.config import UserError, from_dict, parse_json
from apportion.core.spec import Spec
from apportion.core.terminal import all_inert, console, inert
from apportion.data.columns import Columns
from apportion.data.npz import load_npz
from apportion.data.reading import read_rows
from apportion.front.sweep.planning import plan
from apportion.front.sweep.process import clear_way
from apportion.runs.folder import RunFolder, is_held
from driver import apportion, refused
from synthetic_runs import Recipe, make_run, make_spec

SMALL = Recipe(lanes=2, length=4, evaluations=2, episode_snapshots=1)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", SMALL)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that nobody is to read, change or delete."""
    path = tmp_path / "outside" / "diary"
    path.parent.mkdir()
    path.write_bytes(b"dear diary")
    return path


# --- The current folder stands for no package


@pytest.mark.parametrize("start", [["-m", "apportion"], ["-c", "from apportion.cli import main; main()"]])
def test_files_of_the_current_folder_are_not_imported(run: RunFolder, start: list[str]) -> None:
    """tyro.py beside config.json was executed by `apportion show .`."""
    for name in ("tyro", "rich", "jax", "html", "safetensors", "polars"):
        (run.path / f"{name}.py").write_text("raise SystemExit(99)")
    # -c puts the current folder first itself; the command's own script does not.
    safe = ["-P"] if start[0] == "-c" else []
    found = subprocess.run(
        [sys.executable, *safe, *start, "show", "."], cwd=run.path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr


def test_a_module_that_somebody_names_is_found_there_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_learner_of_42.py").write_text("x = 1\n")
    (tmp_path / "numpy.py").write_text("raise SystemExit(99)")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    answer = apportion("train", "apportion/Greenhouse-v0", "--method", "my_learner_of_42:make")
    assert "there is no 'make' in my_learner_of_42" in answer.err
    assert sys.path == before
    for half in (":", "a:", ":b"):
        refused(apportion("train", "apportion/Greenhouse-v0", "--method", half), 2, "")


# --- Links, pipes, devices and giant files


def test_nothing_is_written_through_links(run: RunFolder, outside: Path) -> None:
    for name in (".report.html.tmp", "report.html", ".status.json.tmp", ".lock"):
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(outside)
    assert apportion("report", run.path, "--extras", "none", "--no-env").code == 0
    with pytest.raises(OSError, match="it is a link"), run.lock():
        pass
    assert not is_held(run.path)
    run.metrics.unlink()
    run.metrics.symlink_to(outside)
    with pytest.raises(OSError, match="it is a link"):
        files.append(run.metrics, b"x")
    assert outside.read_bytes() == b"dear diary"


def test_linked_folders_are_refused(run: RunFolder, outside: Path) -> None:
    for path in run.edges.iterdir():
        path.unlink()
    run.edges.rmdir()
    run.edges.symlink_to(outside.parent)
    with pytest.raises(UserError, match="edges is a link"):
        RunFolder.open(run.path)
    assert outside.exists()


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "edges"])  # each with a reader of its own
@pytest.mark.parametrize("what", ["link", "pipe", "device", "giant"])
def test_only_regular_files_of_a_bounded_size_are_read(
    run: RunFolder, outside: Path, name: str, what: str
) -> None:
    """They hung, took gigabytes, or were a traceback."""
    path = run.path / name
    path = path if path.is_file() else sorted(path.iterdir())[-1]
    if what == "giant":
        os.truncate(path, 2**40)
    else:
        path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what in ("link", "device"):
        path.symlink_to(outside if what == "link" else "/dev/zero")
    answer = apportion("show", run.path)
    assert "Traceback" not in answer.err
    assert answer.code == 1 or name in answer.err or "step_" in answer.err


def test_two_writers_of_one_file_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    def twice(temp: Path) -> None:
        files.write_bytes(path, b"second")
        temp.write_bytes(b"first")

    files.replace(path, twice)
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]


def test_arrays_that_unfold_together_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was small enough; `relabel` reads all of them."""
    monkeypatch.setattr("apportion.data.rows.UNPACKED", 2**20)
    path = tmp_path / "log.npz"
    np.savez_compressed(path, **{f"x{number}": np.zeros(2**16) for number in range(4)})
    with pytest.raises(UserError, match="would unpack to"):
        load_npz(path, others=True)


# --- HDF5


HOSTILE = {
    "link": (lambda h5py, outside: h5py.ExternalLink(str(outside), "x"), "rewards is a link"),
    "complex": (np.ones(20) * 1j, "not real numbers"),
    "texts": ([b"x"] * 20, "not real numbers"),
    "number": (1.0, "rows, but rewards 1"),
    "wide": (np.ones((20, 2)), "rows, but rewards 40"),
    "giant": (None, "too large"),
    "folder": (None, "no array of this file"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_hdf5_is_refused_in_a_line(tmp_path: Path, outside: Path, what: str) -> None:
    h5py = pytest.importorskip("h5py")
    path, (rewards, said) = tmp_path / "log.h5", HOSTILE[what]
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = np.ones((20, 2)), np.ones((20, 1))
        file["terminals"] = np.arange(20) % 5 == 4
        if what == "giant":
            file.create_dataset("rewards", (2**40,), "f8")
        elif what == "folder":
            file.create_group("rewards")
        else:
            file["rewards"] = rewards(h5py, outside) if callable(rewards) else rewards
    with pytest.raises(UserError, match=said):
        read_rows(str(path), Columns())


# --- Names on a terminal, and JSON without end

NAMES = ("[/bold]", "[red]x[/red]", "\x1b[2J\x1b]0;x\x07", "a\rb\nc", "\u202eabc")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_only_shown(tmp_path: Path, name: str) -> None:
    made = make_run(tmp_path / "run", replace(SMALL, env=name, method=name, names=(name,)))
    (made.path / ".lock").touch()
    answer = apportion("show", made.path)
    assert answer.code == 0, answer.err
    shown = answer.out + answer.err
    assert all(line.isprintable() for line in shown.split("\n"))
    assert inert(name) in shown
    assert inert(inert(name)) == inert(name)
    assert all_inert({name: [name, 1]}) == {inert(name): [inert(name), 1]}
    answer = apportion("show", tmp_path / name)
    assert answer.err.count("\n") == 1
    assert answer.err.strip().isprintable()


@pytest.mark.parametrize("columns", ["0", "1", "3", "x"])
def test_narrow_terminals_are_drawn_on(run: RunFolder, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width >= 20
    assert apportion("show", run.path).code == 0


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, '{"a": ' + "9" * 5_000 + "}"]
)
def test_json_without_end_is_refused_wherever_it_is_read(run: RunFolder, tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"deep|large"):
        parse_json(text)
    file = tmp_path / "given.json"
    file.write_text(text)
    for code, *words in (
        (1, "report", run.path, "--names", file, "--no-env"),
        (1, "compare", run.path, "--random", file),
        (2, "train", "apportion/Greenhouse-v0", "--env.kwargs", text),
    ):
        refused(apportion(*words), code, "")


# --- Nothing changes or is lost silently


def test_what_has_changed_of_an_environment_is_named() -> None:
    was = replace(make_spec(SMALL), action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
    was.check_same(replace(was, observation_names=tuple(f"new {name}" for name in was.observation_names)))
    more = replace(was, observation_names=(*was.observation_names, "x"), true_graph=None)
    for now, said in (
        (replace(was, action_high=(1.0, 2.0)), r"highest actions were \(1.0, 1.0\), now \(1.0, 2.0\)"),
        (more, "observed numbers were 4, now 5"),
    ):
        with pytest.raises(UserError, match=said):
            was.check_same(now)


def test_a_run_that_is_written_is_not_to_be_deleted(run: RunFolder) -> None:
    with run.lock(), pytest.raises(UserError, match=r"^(?!.*delete).*being written"):
        RunFolder.create(run.path, {}, run.read_spec())


def test_a_sweep_deletes_no_run_that_has_learned(run: RunFolder) -> None:
    """Its checkpoints were gone, and so was all the rest."""
    (run.path / "my-notes.txt").write_text("dear diary")
    clear_way(run.path)
    kept = run.path.with_name("run.without-checkpoints")
    assert (kept / "my-notes.txt").read_text() == "dear diary"
    begun = run.path
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    clear_way(begun)
    assert not begun.exists()


@pytest.mark.slow
def test_environments_that_change_the_folder_leave_the_run_where_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "goer.py").write_text(
        "import os, gymnasium\n"
        "from apportion.envs.greenhouse import Greenhouse\n"
        "os.makedirs('elsewhere', exist_ok=True)\nos.chdir('elsewhere')\n"
        "def make():\n    print('hello')\n    return Greenhouse()\n"
    )
    words = "train goer:make --out here --workers 0 --steps 40 --steps-per-iteration 20 --json --quiet"
    more = "--warmup-steps 20 --updates-per-iteration 1 --evaluate-every 20 --env.max-episode-steps 5"
    small = "--backbone.hidden 4 --method.hidden 4 --evaluation-episodes 1 --method rd --replay-steps 100"
    command = [sys.executable, "-m", "apportion", *f"{words} {more} {small}".split()]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["run"] == str(tmp_path / "here")
    assert (tmp_path / "here" / "config.json").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


BROKEN = """
import gymnasium
class Odd(BaseException):
    pass
class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    def __init__(self):
        raise ZeroDivisionError("the motor is hot")
class Strange(Broken):
    def __init__(self):
        raise Odd("so it is")
"""


def test_environments_that_break_are_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sweep, and in the training's own process."""
    (tmp_path / "broken_env_of_42.py").write_text(BROKEN)
    (tmp_path / "sweep.toml").write_text('[sweep]\ntasks = ["broken_env_of_42:Broken"]\nmethods = ["rd"]\n')
    monkeypatch.chdir(tmp_path)
    answer = apportion("sweep", "sweep.toml")
    assert answer.err.splitlines()[-1].startswith("error: job ")
    assert "ZeroDivisionError: the motor is hot" in answer.err.splitlines()[-1]
    flags = ("--workers", "0", "--env.max-episode-steps", "5", "--quiet")
    answer = apportion("train", "broken_env_of_42:Strange", *flags)
    assert answer.err.splitlines()[-1] == "error: the environment raised Odd: so it is"


def test_products_and_levels_without_end_are_refused() -> None:
    vary = {"steps_per_iteration": list(range(2_000))}
    with pytest.raises(UserError, match="name fewer"):
        plan({"sweep": {"tasks": ["apportion/Greenhouse-v0"]}, "vary": vary})
    data: Any = make_spec(SMALL).to_dict()
    with pytest.raises(UserError, match="levels must be"):
        from_dict(Spec, data | {"levels": [-1] * 6})


def test_without_a_home_there_is_no_cache_and_no_complaint(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", staticmethod(no_home))
    assert apportion("report", run.path, "--extras", "none", "--no-env").code == 0
