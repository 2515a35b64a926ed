"""The command line from inside this process, small settings for it, and what a run folder is compared by."""

import contextlib
import gc
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apportion.cli import main
from apportion.runs import checkpoint
from apportion.runs.folder import RunFolder

GREENHOUSE = "apportion/Greenhouse-v0"
EPISODE = 10  # steps
# Of a training of seconds. All tests use the same sizes, to compile each program only once.
SCHEDULE: dict[str, Any] = {
    "steps_per_iteration": 200,
    "updates_per_iteration": 3,
    "warmup_steps": 400,
    "evaluate_every": 400,
    "evaluation_episodes": 3,
    "checkpoint_every": 1000,
    "checkpoint_minutes": 1e9,  # however slow the machine is
    # Less than the 2,000 steps of `tiny`: the oldest episodes have to go. After 1,500 steps there are 150
    # segments, and GRD looks for its edges.
    "replay_steps": 1800,
}
# The same as a script writes it: with two seeds its programs serve here too.
TINY = SCHEDULE | {"backbone": {"hidden": (8, 8), "batch_size": 16}, "env.max_episode_steps": EPISODE}
CACHE_RACE = "Error reading persistent compilation cache"  # JAX reads what a neighbour is still writing
Run = RunFolder


class Answer(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one JSON object; anything else on stdout is an error."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


def apportion(*words: str | Path, stdout: io.StringIO | None = None) -> Answer:
    """Run a command in this process. What its worker processes print is not in the answer."""
    out, err = stdout or io.StringIO(), io.StringIO()
    code: Any = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as leaving:
            code = leaving.code
    return Answer(code, out.getvalue(), err.getvalue())


def apart(*words: str | Path, before: str = "") -> "subprocess.Popen[str]":
    """Start a command in a process of its own, after running some Python there."""
    # Python looks for garbage as rarely as in this process: see conftest.py.
    rarely = f"import gc, sys\ngc.set_threshold{gc.get_threshold()}"
    script = f"{rarely}\nfrom apportion.cli import main\n{before}\nmain(sys.argv[1:])"
    # A group of its own: a Ctrl-C for the tests is not one for it.
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": f"ignore:{CACHE_RACE}"},
        process_group=0,
    )


def refused(answer: Answer, code: int, reason: str) -> None:
    """One line of error, with this in it, and nothing else."""
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert reason in answer.err


def tiny(method: str, *more: str | Path) -> list[str | Path]:
    """Flags for a training of seconds. GRD is the default one, and `published` the paper's."""
    networks = ["--backbone.hidden", "8", "8", "--backbone.batch-size", "16"]
    if method in ("grd", "published"):
        networks += ["--method.hidden", "8", "8"]
    if method == "published":
        # With edges that move in so short a time.
        networks += ["--preset", "paper", "--method.segments", "4"]
        networks += ["--method.initial-edge-logit", "1", "--method.edge-learning-rate", "0.1"]
        method = "grd"
    schedule = {"steps": 2000, **SCHEDULE, "env.max_episode_steps": EPISODE, "seeds": 2}
    flags = [word for name, value in schedule.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["--method", method, *networks, *flags, "--quiet", *more]


def train(out: Path, env: str, *flags: str | Path) -> Run:
    """Train, and insist that it went well and without a word."""
    assert apportion("train", env, "--out", out, *flags) == Answer(0, "", "")
    return Run(out)


def resume(run: Run, *flags: str | Path) -> None:
    assert apportion("resume", run.path, "--quiet", *flags) == Answer(0, "", "")


def remarks(stderr: str) -> list[str]:
    """What was said beside the progress of a training that goes well."""
    return [line for line in stderr.splitlines() if not line.startswith(("step ", "Writing to "))]


def records(run: Run) -> list[dict[str, Any]]:
    """All that was logged, but for the time it took."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in run.read_metrics()]


def arrays(run: Run) -> dict[str, Any]:
    """All arrays of the newest checkpoint: agents, the best ones and when those were, replay, steps ahead,
    and where the environments are."""
    loaded = checkpoint.load(run.checkpoints)
    assert loaded.skipped == []
    moments = {f"best.{k}": np.asarray(v) for k, v in loaded.meta.get("best", {}).items()}
    return {k: v for k, v in loaded.tree.items() if k != "log"} | moments  # which has times in it


def assert_same_arrays(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def assert_same_run(found: Run, expected: Run) -> None:
    """Bit for bit: the state at the end and everything written on the way."""
    assert checkpoint.steps(found.checkpoints) == checkpoint.steps(expected.checkpoints)
    assert_same_arrays(arrays(found), arrays(expected))
    assert records(found) == records(expected)
    for name in ("edges", "episodes"):
        assert _files(found.path / name) == _files(expected.path / name)


def _files(folder: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    assert files
    return files
