"""Damage a run folder in many ways, and see that every command either says so or answers as before.

    python benchmarks/fuzz.py --cases 10000 --out results/fuzz.json

One small run is trained; each case damages one of its files, runs one command and puts the file back. What
must not happen: a traceback, an error of more than one line, another answer without a word, a command that
does not end, a change to a file outside of the folder, and a control character on the terminal. Files of
logged episodes (NPZ, HDF5, CSV) and random command lines are tried in the same way. A forged file, with a
checksum that fits, may change an answer, but must not lead to any of the others either.
"""

import base64
import collections
import contextlib
import gzip
import io
import json
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import tyro

from apportion.cli import VERBS, main
from apportion.core.config import UserError
from apportion.core.terminal import inert
from apportion.data.columns import Columns
from apportion.data.npz import read_npz
from apportion.data.reading import read_log
from apportion.runs import checkpoint
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions
from lib.damage import MEANT, another_task, kinds, put_back

ENV = "apportion/Greenhouse-v0"
SETTINGS = shlex.split(
    "--backbone.hidden 8 8 --backbone.batch-size 16 --method.hidden 8 8 --steps 1200 --warmup-steps 400 "
    "--steps-per-iteration 200 --updates-per-iteration 3 --evaluate-every 400 --evaluation-episodes 2 "
    "--checkpoint-every 600 --checkpoint-minutes 1e9 --replay-steps 1000 --env.max-episode-steps 10 --seeds 2"
)
# How often each command is chosen: the slow ones rarely.
COMMANDS = {
    "show": 40,
    "report": 14,
    "export": 8,
    "explain": 4,
    "eval": 3,
    "resume": 3,
    "npz": 14,
    "words": 14,
    "table": 14,  # `show` for people
    "hdf5": 8,
    "csv": 8,
    "changed": 2,  # `eval` where the environment is not what it was
}
SECONDS = 180  # after which a command hangs


@dataclass(frozen=True)
class Fuzz:
    """Damage files and command lines, and count what comes of it."""

    out: Path
    """JSON file to write."""
    cases: int = 10_000
    """How many."""
    seed: int = 0
    """Of the damage."""
    only: tuple[str, ...] = ()
    """Only these commands."""


Counts = dict[str, collections.Counter[str]]  # of each command, the verdicts


class Answer(NamedTuple):
    """What a command did."""

    code: int
    said: tuple[str, ...]  # lines on stderr, but for progress
    result: Any  # what it answered, without moments of time
    trace: str | None  # an exception that reached the user


def fuzz(args: Fuzz) -> None:
    rng, began = random.Random(args.seed), time.monotonic()
    counts: Counts = collections.defaultdict(collections.Counter)
    failures: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        run = Damaged(Path(name))
        weights = {each: COMMANDS[each] for each in args.only or COMMANDS}
        for number in range(args.cases):
            command = rng.choices(list(weights), list(weights.values()))[0]
            what, verdict, detail = run.case(command, random.Random(rng.random()))
            counts[command][verdict] += 1
            if verdict in BAD:
                failures.append({"command": command, "damage": what, "verdict": verdict, "detail": detail})
                print(f"{verdict}: {command} after {what}\n{detail}", file=sys.stderr)
            if (number + 1) % 100 == 0 or number + 1 == args.cases:
                print(f"{number + 1} of {args.cases} cases, {len(failures)} failures", file=sys.stderr)
                write_json(args.out, as_data(args.seed, counts, failures, time.monotonic() - began))
    sys.exit(1 if failures else 0)


def as_data(seed: int, counts: Counts, failures: list[dict[str, str]], seconds: float) -> dict[str, Any]:
    """What there is to say by now."""
    total = sum(counts.values(), collections.Counter())
    return {
        "cases": total.total(),
        "corruptions": total.total() - counts["words"].total(),
        "verdicts": dict(total),
        "by_command": {command: dict(each) for command, each in counts.items()},
        "failures": failures,
        "seed": seed,
        "seconds": round(seconds),
        "versions": versions(),
    }


BAD = ("traceback", "untidy", "silent", "hang", "outside", "escape")


class Damaged:
    """One run, its files, and what the commands say while they are whole."""

    def __init__(self, root: Path) -> None:
        self.root, self.run = root, root / "run"
        told = call("train", ENV, "--out", self.run, "--quiet", *SETTINGS)
        assert told.code == 0, told
        shutil.copytree(self.run, root / "whole")
        self.outside = root / "outside"
        self.outside.mkdir()
        self.logs = {"npz": root / "log.npz", "hdf5": root / "log.h5", "csv": root / "log.csv"}
        self.log = self.logs["npz"]
        rng = np.random.default_rng(0)
        arrays = {"observations": rng.random((4, 6, 3)), "actions": rng.random((4, 5, 2))}
        np.savez(self.log, **arrays, lengths=np.array([5, 4, 5, 3]), totals=rng.random(4))
        write_hdf5(self.logs["hdf5"])
        write_csv(self.logs["csv"])
        self.answers = {}
        for command in COMMANDS.keys() - {"words", "changed"}:
            self.answers[command] = self.ask(command)
            self.renew()
        assert all(answer.code == 0 for answer in self.answers.values()), self.answers

    def case(self, command: str, rng: random.Random) -> tuple[str, str, str]:
        """What was done, what came of it, and the details."""
        if command == "words":
            words = command_line(rng, self.run)
            return "words", *judged(call(*words), None, " ".join(words))
        path = self.logs[command] if command in self.logs else rng.choice(self.files(command))
        path = self.run / "spec.json" if command == "changed" else path
        harm = another_task if command == "changed" else rng.choice(kinds(path))
        whole = path.read_bytes()
        canary = self.outside / "canary"
        canary.write_bytes(whole)
        try:
            harm(path, rng)
            answer = self.ask(command)
        finally:
            self.repair(path, whole, everything=command == "resume")
        what = f"{harm.__name__} {path.relative_to(self.root)}"
        if canary.read_bytes() != whole or len(list(self.outside.iterdir())) > 1:
            return what, "outside", "a file outside of the folder has changed"
        if harm is another_task and answer.code == 0:
            return what, "silent", "an environment that was another when the run began"
        bare = command in ("hdf5", "csv")  # formats without a checksum: another number is another log
        before = None if harm in MEANT or bare else self.answers[command]
        return what, *judged(answer, before)

    def files(self, command: str) -> list[Path]:
        """Those that the command reads, and a few that it does not."""
        skipped = ("tensorboard", "episodes") if command in ("show", "export", "eval") else ("tensorboard",)
        files = [path for path in sorted(self.run.rglob("*")) if path.is_file() and path.name != ".lock"]
        return [each for each in files if each.relative_to(self.run).parts[0] not in skipped]

    def repair(self, path: Path, whole: bytes, everything: bool) -> None:
        if everything:
            self.renew()
        else:
            put_back(path, whole)

    def renew(self) -> None:
        """The whole run again, as new files."""
        shutil.rmtree(self.run)
        shutil.copytree(self.root / "whole", self.run, copy_function=shutil.copy)

    def ask(self, command: str) -> Answer:
        """One command, and its answer in a form that can be compared."""
        if command in ("hdf5", "csv"):
            return _reading(lambda: _rows(self.logs[command]))
        if command == "npz":
            return _reading(
                lambda: [part.tolist() for part in (*read_npz(self.log).actions, *_log(self.log))]
            )
        out = {name: self.root / f"out.{name}" for name in ("html", "npz")}
        for file in out.values():
            file.unlink(missing_ok=True)
        words = {
            "report": ("--out", out["html"], "--extras", "none"),
            "export": ("--out", out["npz"]),
            "explain": ("--step", "0", "--lane", "0", "--json"),
            "eval": ("--episodes", "1", "--json"),
            "resume": ("--json",),
            "show": ("--json",),
            "table": (),
            "changed": ("--episodes", "1", "--json"),
        }
        verb = {"table": "show", "changed": "eval"}.get(command, command)
        answer = call(verb, self.run, *words[command])
        if answer.code != 0:
            return answer
        return answer._replace(result=self.result(command, answer, out))

    def result(self, command: str, answer: Answer, out: dict[str, Path]) -> Any:
        match command:
            case "report":
                return _page(out["html"])
            case "export":
                return out["npz"].read_bytes()
            case "resume":
                return _state(RunFolder(self.run))
            case "table":
                return answer.result
        return json.loads(answer.result)


def call(*words: Any) -> Answer:
    """A command in this process."""
    out, err, code, trace = io.StringIO(), io.StringIO(), 0, None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), alarm():
        try:
            main([str(word) for word in words])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except Hang:
            trace = HANG
        except BaseException:
            trace = traceback.format_exc()
    said = [
        line for line in err.getvalue().splitlines() if not line.startswith(("step ", "Writing", "Reading"))
    ]
    return Answer(code, tuple(said), out.getvalue(), trace)


HANG = "it did not end"


class Hang(BaseException):
    """A command has taken too long."""


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Hang, after so many seconds."""

    def ring(number: int, frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _reading(read: Callable[[], Any]) -> Answer:
    try:
        with alarm():
            return Answer(0, (), read(), None)
    except Hang:
        return Answer(1, (), None, HANG)
    except UserError as error:
        return Answer(1, (f"error: {inert(str(error))}",), None, None)
    except BaseException:
        return Answer(1, (), None, traceback.format_exc())


def judged(answer: Answer, before: Answer | None, words: str = "") -> tuple[str, str]:
    """What to think of an answer, beside that of whole files; None where it may be another."""
    if answer.trace is not None:
        return "hang" if answer.trace == HANG else "traceback", f"{words}\n{answer.trace}"
    shown = [*answer.said, *(answer.result.splitlines() if isinstance(answer.result, str) else ())]
    if any(not each.isprintable() for line in shown for each in line):
        return "escape", str(shown)
    if answer.code != 0:
        tidy = len([line for line in answer.said if line.startswith("error: ")]) == 1
        return ("refused" if tidy and answer.said[-1].startswith("error: ") else "untidy"), str(answer.said)
    if before is None or answer.result == before.result:
        return "same" if not answer.said else "told", ""
    new = set(answer.said) - set(before.said)
    return ("told", "") if new else ("silent", _difference(answer.result, before.result))


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return ", ".join(
            f"{key}: {str(found.get(key))[:80]} / {str(wanted.get(key))[:80]}" for key in keys[:5]
        )
    return f"{str(found)[:200]} / {str(wanted)[:200]}"


def _rows(path: Path) -> Any:
    log = read_log(str(path), Columns(outcome="paid") if path.suffix == ".csv" else Columns()).log
    return [part.tolist() for part in (*log.observations, *log.actions, log.totals)]


def write_csv(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{row // 4},{row % 4},{rng.random():.4f},{rng.random():.4f},{row // 4}" for row in range(20)]
    path.write_text("\n".join(["episode,step,s_size,a_push,paid", *rows]) + "\n")


def write_hdf5(path: Path) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, shape in (("observations", (20, 3)), ("actions", (20, 2)), ("rewards", (20,))):
            file[name] = rng.random(shape)
        file["terminals"] = np.arange(20) % 5 == 4


def _log(path: Path) -> Any:
    log = read_npz(path)
    return (*log.observations, log.totals, np.array(log.observation_names), np.array(log.action_names))


def _page(path: Path) -> Any:
    """The data of a page, but for when it was made."""
    text = re.search(r'id="data">([^<]*)<', path.read_text("utf-8"))
    assert text is not None
    data = json.loads(gzip.decompress(base64.b64decode(text[1])))
    return data | {"made": None}


def _state(run: RunFolder) -> Any:
    """What a resumed run comes to, but for times and for what is only about files."""
    loaded = checkpoint.load(run.checkpoints)
    arrays = {**loaded.tree, **{name: each for name, each in loaded.raw.items() if name != "log"}}
    entries = [{key: each[key] for key in each if key != "seconds"} for each in run.read_metrics()]
    found = [path for folder in (run.edges, run.episodes) for path in folder.glob("step_*.safetensors")]
    files = {str(path): path.read_bytes() for path in found}
    config = run.read_config()
    return {
        "arrays": {name: array.tobytes() for name, array in arrays.items()},
        "entries": entries,
        "files": files,
        "config": config,
        "best": loaded.meta["best"],
    }


WORDS = """--json --quiet --best --out --lane --steps --seed --help --episodes --noise --extras --names
    --negligible --step --method --backbone --seeds --bogus --env.kwargs --checkpoint-minutes --no-env"""
FLAGS = WORDS.split()
VALUES = (
    *("", "0", "-1", "1e999", "nan", "inf", "9" * 400, "x", "🌱", "[[[", "{" * 3000),
    *("a:b", "../..", "\x00", "None", "--"),
)


def command_line(rng: random.Random, run: Path) -> list[str]:
    """A command line as a monkey would type it. A training is always refused in the end."""
    verb = rng.choice([verb for verb in VERBS if verb != "resume"] + ["shwo", ""])
    words = [verb]
    if rng.random() < 0.7:
        words.append(rng.choice((str(run), str(run / "config.json"), "nowhere", ENV, "a" * 300)))
    for _ in range(rng.randrange(5)):
        words.append(rng.choice(FLAGS))
        if rng.random() < 0.7:
            words.append(rng.choice(VALUES))
    # Nothing is to be written over the run, or trained for long.
    words = ["--json" if word == "--out" else word for word in words]
    return [*words, "--env.max-episode-steps", "0"] if verb == "train" else words


if __name__ == "__main__":
    fuzz(tyro.cli(Fuzz))
