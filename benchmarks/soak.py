"""Train for a long time, and watch whether anything grows: memory, open files, processes.

Twenty lanes of the greenhouse with a replay that soon is full, and a checkpoint after every iteration. Slopes
are least squares over the means of equal parts of the time, the first of which is left out: what compiles and
fills up there is no leak. Their 95% intervals are Student's, as if these means were independent.

    python benchmarks/soak.py --minutes 30 --out results/soak.json
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from scipy import stats

from apportion.report.statistics import thinned
from apportion.runs import checkpoint
from apportion.runs.folder import RunFolder, read_json

STEPS_PER_ITERATION = 20
REPLAY_STEPS = 1_000
PARTS = 11  # equal parts of the time; the first is left out

FLAGS = f"""
    --method grd --seeds 20 --steps 100000000
    --steps-per-iteration {STEPS_PER_ITERATION} --updates-per-iteration 2
    --warmup-steps 200 --evaluate-every 400 --evaluation-episodes 1 --replay-steps {REPLAY_STEPS}
    --checkpoint-every {STEPS_PER_ITERATION} --keep 3
    --method.hidden 8 8 --backbone.hidden 8 8 --backbone.batch-size 16 --quiet
"""


@dataclass(frozen=True)
class Soak:
    """Train for a long time, and watch whether anything grows."""

    minutes: float = 30.0
    """How long to train."""
    seconds_between_looks: float = 2.0
    """How often to look."""
    out: Path = Path("results/soak.json")
    """The file to write."""


class Look(NamedTuple):
    """What all processes of the training hold at one moment."""

    seconds: float
    main_mb: float  # resident memory
    workers_mb: float
    open_files: int
    processes: int
    disk_mb: float  # of the checkpoints


def main(settings: Soak) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the training is ended, too
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        command = [sys.executable, "-m", "apportion", "train", "apportion/Greenhouse-v0", *FLAGS.split()]
        began = time.monotonic()
        with subprocess.Popen([*command, "--out", str(run.path)], stdout=subprocess.DEVNULL) as training:
            try:
                looks = watch(training, run, settings, began)
            except BaseException:
                training.kill()  # or leaving would wait for its end
                raise
            family = [training.pid, *children(training.pid)]
            training.send_signal(signal.SIGTERM)
            code = training.wait()
        result = summary(run, looks, time.monotonic() - began)
    result |= {"exit_code": code, "survivors": [pid for pid in family if Path(f"/proc/{pid}").exists()]}
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "looks"}, indent=1))


def watch(training: "subprocess.Popen[bytes]", run: RunFolder, settings: Soak, began: float) -> list[Look]:
    """Looks from the first checkpoint on."""
    looks: list[Look] = []
    while not checkpoint.steps(run.checkpoints):
        check_alive(training)
        time.sleep(0.1)
    while time.monotonic() - began < 60 * settings.minutes:
        check_alive(training)
        looks.append(look(training.pid, run, time.monotonic() - began))
        time.sleep(settings.seconds_between_looks)
    return looks


def check_alive(training: "subprocess.Popen[bytes]") -> None:
    assert training.poll() is None, f"the training ended early, with code {training.returncode}"


def look(process: int, run: RunFolder, seconds: float) -> Look:
    workers = children(process)
    family = [process, *workers]
    # Of os.walk, which passes over a folder that is just being removed.
    sizes = [size(Path(folder) / file) for folder, _, files in os.walk(run.checkpoints) for file in files]
    memory = [resident(each) for each in family]
    files = sum(open_files(each) for each in family)
    return Look(seconds, memory[0], sum(memory[1:]), files, len(family), sum(sizes) / 1e6)


def children(process: int) -> list[int]:
    """All processes below this one, by Linux's own lists."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, read(task).split()):
            found += [child, *children(child)]
    return found


def resident(process: int) -> float:
    """MB; 0 of one that has just ended."""
    fields = read(Path(f"/proc/{process}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if fields else 0.0


def open_files(process: int) -> int:
    try:
        return len(os.listdir(f"/proc/{process}/fd"))
    except OSError:  # it has just ended
        return 0


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has just been replaced
        return 0


def summary(run: RunFolder, looks: Sequence[Look], seconds: float) -> dict[str, Any]:
    """How far the training came, and what grew by how much in an hour."""
    step = int(read_json(run.status)["step"])
    table = np.array(looks)
    columns = dict(zip(Look._fields, table.T, strict=True))
    times = columns.pop("seconds")
    return {
        "minutes": seconds / 60,
        "lanes": 20,
        "steps_per_lane": step,
        "replay_filled_times": step / REPLAY_STEPS,
        "checkpoints_written": step // STEPS_PER_ITERATION,
        "checkpoints_kept": len(checkpoint.steps(run.checkpoints)),
        "lines_logged": len(run.read_metrics()),
        "growth_per_hour": {name: slope(times, values) for name, values in columns.items()},
        "first_and_last": {name: [float(v[0]), float(v[-1])] for name, v in columns.items()},
        "largest": {name: float(values.max()) for name, values in columns.items()},
        "looks": [[round(float(value), 1) for value in each] for each in table[thinned(len(table), 60)]],
    }


def slope(seconds: Any, values: Any) -> dict[str, float]:
    """Growth per hour, with its interval."""
    x, y = (np.array([part.mean() for part in np.array_split(each, PARTS)[1:]]) for each in (seconds, values))
    found = stats.linregress(x / 3600, y)
    width = float(stats.t.ppf(0.975, len(y) - 2)) * found.stderr
    return {"estimate": found.slope, "low": found.slope - width, "high": found.slope + width}


if __name__ == "__main__":
    main(tyro.cli(Soak))
