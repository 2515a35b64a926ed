"""Kill trainings at any moment, resume them, and compare with one that was never stopped: bit for bit.

    python benchmarks/kills.py --kills 50 --out results/kills.json

Every backbone has its share. A kill is SIGKILL, which leaves a process no moment to tidy up: at a random
time, right after a line of the log, and at each stage of writing a checkpoint.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from apportion.runs import checkpoint
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions

GREENHOUSE = "apportion/Greenhouse-v0"
CONTINUOUS = ("sac", "crossq", "simba", "flashsac", "td3", "ddpg", "ppo")
NARROW = ["--backbone.critic-hidden", "8", "8"]
MORE = {"crossq": NARROW, "simba": NARROW, "flashsac": NARROW}  # settings of these alone
TASKS = {**dict.fromkeys(CONTINUOUS, GREENHOUSE), "dqn": "CartPole-v1"}
STEPS, EVERY = 1_000, 200
SETTINGS = (
    f"--backbone.hidden 8 8 --backbone.batch-size 16 --method.hidden 8 8 --steps {STEPS} --warmup-steps 200 "
    f"--steps-per-iteration 100 --updates-per-iteration 2 --evaluate-every {EVERY} --evaluation-episodes 1 "
    f"--checkpoint-every {EVERY} --checkpoint-minutes 1e9 --replay-steps 900 --env.max-episode-steps 5 "
    "--seeds 1 --workers 0 --quiet"
).split()

# Python for the doomed process: it dies at the n-th call of a function, before or after its work.
DOOM = """
import os, signal, sys
from apportion.runs import {module} as module
holder = module{holder}
whole, calls = getattr(holder, {name!r}), 0
def dying(*arguments, **named):
    global calls
    calls += 1
    if calls == {call} and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    result = whole(*arguments, **named)
    if calls == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(holder, {name!r}, dying)
"""
# Where it dies: in which module, which function, and how often that is called in a run after the first save.
MOMENTS: dict[str, tuple[str, str, str, range]] = {
    "while arrays are written": ("atomic", "", "_save", range(6, 16)),
    "while a checkpoint is written": ("checkpoint", ".atomic", "write_arrays", range(2, 5)),
    "while one gets its name": ("atomic", ".os", "replace", range(12, 40)),
    "while an old one is removed": ("checkpoint", ".Path", "unlink", range(1, 4)),
    "after a line of the log": ("logs", ".MetricsLog", "write", range(4, 14)),
    "after edges or episodes": ("folder", "", "write_arrays", range(3, 10)),
    "after the status": ("atomic", ".files", "write_bytes", range(5, 6)),
}


@dataclass(frozen=True)
class Kills:
    """Kill trainings, resume them, and compare."""

    out: Path
    """JSON file to write."""
    kills: int = 50
    """How many."""
    seed: int = 0
    """Of the moments."""
    backbones: tuple[str, ...] = tuple(TASKS)
    """Which to train, in turn."""


def main(args: Kills) -> None:
    rng, began, rows = random.Random(args.seed), time.monotonic(), []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # Compiled once, for all processes.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(root / "compiled")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        straight = {backbone: root / f"straight-{backbone}" for backbone in args.backbones}
        for backbone, path in straight.items():
            assert started(path, backbone, "").wait() == 0
        for number in range(args.kills):
            backbone = args.backbones[number % len(args.backbones)]
            moment = rng.choice([*MOMENTS, "at a random time", "at a random time"])
            path = root / f"killed-{number}"
            killed = kill(path, backbone, moment, rng)
            same, reason = resumed_alike(path, straight[backbone])
            row = {"backbone": backbone, "moment": moment, **killed, "bit_equal": same, "reason": reason}
            rows.append(row)
            print(f"{number + 1} of {args.kills}: {row}", file=sys.stderr, flush=True)
            write_json(args.out, as_data(rows, time.monotonic() - began))
    equal = sum(row["bit_equal"] for row in rows)
    print(json.dumps({"kills": sum(row["killed"] for row in rows), "bit_equal": equal}))
    sys.exit(0 if equal == args.kills else 1)


def as_data(rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    killed, equal = (sum(row[key] for row in rows) for key in ("killed", "bit_equal"))
    counts = {"cases": len(rows), "kills": killed, "bit_equal": equal}
    return {**counts, "seconds": round(seconds), "versions": versions(), "rows": rows}


def started(path: Path, backbone: str, before: str) -> "subprocess.Popen[bytes]":
    settings = [*SETTINGS, *MORE.get(backbone, [])]
    words = ["train", TASKS[backbone], "--out", str(path), "--backbone", backbone, *settings]
    script = f"{before}\nimport sys\nfrom apportion.cli import main\nmain(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", script, *words])


def kill(path: Path, backbone: str, moment: str, rng: random.Random) -> dict[str, Any]:
    """Train until the moment. A run that is killed before its first checkpoint can only begin anew, so that
    a random time is one after it."""
    if moment in MOMENTS:
        module, holder, name, calls = MOMENTS[moment]
        call, before = rng.choice(calls), rng.random() < 0.5
        doom = DOOM.format(module=module, holder=holder, name=name, call=call, before=before)
        code = started(path, backbone, doom).wait()
    else:
        process = started(path, backbone, "")
        run, least = RunFolder(path), rng.choice(range(EVERY, STEPS, EVERY))
        while process.poll() is None and max(checkpoint.steps(run.checkpoints), default=0) < least:
            time.sleep(0.01)
        time.sleep(rng.random() / 4)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        code = process.wait()
    saved = checkpoint.steps(RunFolder(path).checkpoints)
    return {"killed": code == -signal.SIGKILL, "checkpoints": saved}


def resumed_alike(path: Path, straight: Path) -> tuple[bool, str]:
    """Whether the killed run, resumed, ends as the other did; and if not, in what they differ."""
    script = "import sys\nfrom apportion.cli import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", script, "resume", str(path), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        return False, f"resume ended with {done.returncode}: {done.stderr}"
    found, wanted = state(RunFolder(path)), state(RunFolder(straight))
    differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return not differing, ", ".join(differing[:5])


def state(run: RunFolder) -> dict[str, Any]:
    """All that a training leaves behind, but for how long it took."""
    loaded = checkpoint.load(run.checkpoints)
    arrays = {name: each for name, each in loaded.tree.items() if name != "log"}
    entries = [{key: each[key] for key in each if key != "seconds"} for each in run.read_metrics()]
    files = [path for folder in (run.edges, run.episodes) for path in sorted(folder.iterdir())]
    return {
        **{name: (array.dtype.name, array.shape, array.tobytes()) for name, array in arrays.items()},
        **{str(path.relative_to(run.path)): path.read_bytes() for path in files},
        "steps": (checkpoint.steps(run.checkpoints), loaded.meta["best"]["steps"]),
        "metrics": entries,
        "config": run.read_config(),
    }


if __name__ == "__main__":
    main(tyro.cli(Kills))
