"""Damage files in many ways, and see that every command either says so or answers as before.

    python benchmarks/fuzz.py --cases 10000 --out results/fuzz.json

One small run is trained, another is fitted to logged episodes; each case damages a file of these, or of the
episodes in some format, runs one command and puts the file back. What must not happen: a traceback, an error
of more than one line, another answer without a word, a command that does not end, a change to a file outside
of the folder, and a control character on the terminal. Random command lines are tried in the same way. A
forged file, with a checksum that fits, may change an answer, but must not lead to any of the others either.
"""

import base64
import collections
import contextlib
import gzip
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import polars
import tyro

from apportion.cli import VERBS, main
from apportion.runs import checkpoint
from apportion.runs.atomic import place, read_json, write_json
from apportion.runs.folder import RunFolder, versions
from lib.damage import MEANT, another_task, kinds, put_back

ENV = "apportion/Greenhouse-v0"
SETTINGS = (
    "--backbone.hidden 8 8 --backbone.batch-size 16 --method.hidden 8 8 --steps 1200 --warmup-steps 400 "
    "--steps-per-iteration 200 --updates-per-iteration 3 --evaluate-every 400 --evaluation-episodes 2 "
    "--checkpoint-every 600 --checkpoint-minutes 1e9 --replay-steps 1000 --env.max-episode-steps 10 --seeds 2"
)
FIT = "--updates 6 --method.hidden 8 --seeds 2 --quiet"
PLAN = """[sweep]
tasks = ["apportion/Greenhouse-v0"]
methods = ["grd", "rd"]
seeds = 2
[set]
"env.delay" = 5
[vary]
"method.hidden" = [[8, 8], [16]]
"""


class Command(NamedTuple):
    """What is run while a file is damaged: one of those in braces."""

    weight: int  # how often: the slow ones rarely
    words: str
    file: str = ""  # this one always


COMMANDS = {
    "show": Command(80, "show {run} --json"),
    "table": Command(28, "show {run}"),  # for people
    "report": Command(12, "report {run} --out {out}.html --extras none"),
    "export": Command(16, "export {run} --out {out}.npz"),
    "explain": Command(4, "explain {run} --step 0 --lane 0 --json"),
    "eval": Command(2, "eval {run} --episodes 1 --json"),
    "resume": Command(2, "resume {run} --json"),
    "changed": Command(2, "eval {run} --episodes 1 --json", "spec.json"),  # not the environment it was
    "compare": Command(10, "compare {run} --json --no-env"),
    "fitted": Command(16, "show {fit} --json"),
    "identify": Command(52, "identify {log} --json"),
    "fit": Command(1, f"fit {{log}} --out {{out}} --json {FIT}"),
    "relabel": Command(8, "relabel {fit} {log} --out {out}{ending}"),
    "credit": Command(16, "credit {fit} {log} --by s_kind --json"),
    "sweep": Command(16, "sweep {plan} --dry-run --json"),
    "words": Command(28, ""),
}
# Among the reward and its bounds, which are the last columns of a CSV.
NO_REWARD = re.compile(rb"[,;\t|](nan|-?inf)([,;\t|][^,;\t|\n]*){0,2}$", re.MULTILINE)
SECONDS = 180  # after which a command hangs


@dataclass(frozen=True)
class Fuzz:
    """Damage files and command lines, and count what comes of it."""

    out: Path
    """JSON file to write. One that is there is gone on with: cases that failed are tried again, and more."""
    cases: int = 10_000
    """How many in all."""
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
    out, facts, began = args.out.absolute(), versions(), time.monotonic()
    before: dict[str, Any] = {"cases": 0, "seconds": 0, "seed": args.seed, "commits": []}
    before |= read_json(out) if out.exists() else {}
    assert before["seed"] == args.seed, f"{out} has the seed {before['seed']}"
    counts: Counts = collections.defaultdict(collections.Counter)
    counts |= {command: collections.Counter(found) for command, found in before.get("by_command", {}).items()}
    failures = {each["case"]: each for each in before.get("failures", ())}
    commits = list(dict.fromkeys([*before["commits"], facts["commit"]]))
    with tempfile.TemporaryDirectory() as name:
        run = Damaged(Path(name))
        weights = {each: COMMANDS[each].weight for each in args.only or COMMANDS}
        numbers = [*failures, *range(before["cases"], args.cases)]
        for number in numbers:
            rng = random.Random(f"{args.seed} {number}")
            command = rng.choices(list(weights), list(weights.values()))[0]
            if number in failures:
                counts[command][failures.pop(number)["verdict"]] -= 1
            what, verdict, detail = run.case(command, rng)
            counts[command][verdict] += 1
            if verdict in BAD:
                case = {"case": number, "command": command, "damage": what}
                failures[number] = {**case, "verdict": verdict, "detail": detail}
                print(f"{number}: {verdict}: {command} after {what}\n{detail}", file=sys.stderr)
            if (number + 1) % 100 == 0 or number == numbers[-1]:
                print(f"{number + 1} of {args.cases} cases, {len(failures)} failures", file=sys.stderr)
                seconds = before["seconds"] + round(time.monotonic() - began)
                told = {"seed": args.seed, "seconds": seconds, "commits": commits, "versions": facts}
                write_json(out, as_data(counts, list(failures.values())) | told)
    sys.exit(1 if failures else 0)


def as_data(counts: Counts, failures: list[dict[str, Any]]) -> dict[str, Any]:
    """What there is to say by now."""
    total = sum(counts.values(), collections.Counter())
    return {
        "cases": total.total(),
        "corruptions": total.total() - counts["words"].total(),
        "verdicts": dict(+total),
        "by_command": {command: dict(+each) for command, each in counts.items()},
        "failures": failures,
    }


BAD = ("traceback", "untidy", "silent", "hang", "outside", "escape")


class Damaged:
    """Two runs and their files, and what the commands say while they are whole."""

    def __init__(self, root: Path) -> None:
        self.root, self.run, self.fit, self.plan = root, root / "run", root / "fit", root / "plan.toml"
        self.outside, self.here = root / "outside", root / "here"
        for folder in (self.outside, self.here):
            folder.mkdir()
        os.chdir(self.here)
        self.logs = write_logs(root)
        self.plan.write_text(PLAN)
        self.bare = [log for log in self.logs if log.suffix != ".npz"]
        for words in (
            f"train {ENV} --out {self.run} --quiet {SETTINGS}",
            f"fit {self.logs[0]} --out {self.fit} {FIT}",
        ):
            told = call(*shlex.split(words))
            assert told.code == 0, told
        for folder in (self.run, self.fit):
            shutil.copytree(folder, root / "whole" / folder.name)
        self.answers = {}
        for command in COMMANDS.keys() - {"words"}:
            for log in self.logs_of(command):
                self.answers[command, log] = self.ask(command, log)
                self.renew()
        assert all(answer.code == 0 for answer in self.answers.values()), self.answers

    def logs_of(self, command: str) -> list[Path]:
        """Those that are tried: with a fit to a table those that have its columns, or as many."""
        known = 5 if "{log}" in COMMANDS[command].words else 1
        return self.logs[: {"credit": 3, "relabel": 4}.get(command, known)]

    def case(self, command: str, rng: random.Random) -> tuple[str, str, str]:
        """What was done, what came of it, and the details."""
        if command == "words":
            words = command_line(rng, self.run)
            return "words", *judged(call(*words), None, " ".join(words))
        log = rng.choice(self.logs_of(command))
        path = rng.choice(self.files(command, log))
        harm = another_task if command == "changed" else rng.choice(kinds(path))
        whole = path.read_bytes()
        canary = self.outside / "canary"
        canary.write_bytes(whole)
        try:
            harm(path, rng)
            there = {*self.root.iterdir(), self.root / "out"}
            answer = self.ask(command, log)
            more = {*self.root.iterdir()} - there
        finally:
            put_back(path, whole)
            if command == "resume":
                self.renew()
        what = f"{harm.__name__} {path.relative_to(self.root)}"
        if canary.read_bytes() != whole or len(list(self.outside.iterdir())) > 1:
            return what, "outside", "a file outside of the folder has changed"
        if more or any(self.here.iterdir()):
            return what, "outside", f"there are new files: {more or list(self.here.iterdir())}"
        if harm is another_task and answer.code == 0:
            return what, "silent", "an environment that was another when the run began"
        bare = (
            path.parent == self.root and path.suffix != ".npz"
        )  # no checksum: another number is another log
        before = None if harm in MEANT or bare else self.answers[command, log]
        return what, *judged(answer, before)

    def files(self, command: str, log: Path) -> list[Path]:
        """One in braces: of a folder those that the command reads, and a few that it does not."""
        _, words, file = COMMANDS[command]
        if file:
            return [self.run / file]
        single = {"{log}": log, "{plan}": self.plan}
        files = [path for name, path in single.items() if name in words] * 20
        for folder in (each for each in (self.run, self.fit) if f"{{{each.name}}}" in words):
            skipped = ("tensorboard", *(("episodes",) if command in ("show", "export", "eval") else ()))
            found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
            files += [each for each in found if each.relative_to(folder).parts[0] not in skipped]
        return files

    def renew(self) -> None:
        """Whole runs again, as new files."""
        for folder in (self.run, self.fit):
            shutil.rmtree(folder)
            shutil.copytree(self.root / "whole" / folder.name, folder, copy_function=shutil.copy)

    def ask(self, command: str, log: Path) -> Answer:
        """One command, and its answer in a form that can be compared."""
        folder = self.root / "out"
        shutil.rmtree(folder, ignore_errors=True)
        places = {"run": self.run, "fit": self.fit, "plan": self.plan, "log": log, "ending": log.suffix}
        words = [word.format(**places, out=folder / "x") for word in COMMANDS[command].words.split()]
        folder.mkdir()
        answer = call(*words)
        if answer.code != 0 or answer.trace is not None:
            return answer
        answer = answer._replace(result=self.result(command, answer, folder))
        no_number = command == "relabel" and NO_REWARD.search(answer.result)
        return answer._replace(trace="a reward is no number") if no_number else answer

    def result(self, command: str, answer: Answer, folder: Path) -> Any:
        match command:
            case "report":
                return _page(folder / "x.html")
            case "export":
                return (folder / "x.npz").read_bytes()
            case "relabel":
                return next(folder.iterdir()).read_bytes()
            case "resume":
                return _state(RunFolder(self.run))
            case "table":
                return answer.result
        data = json.loads(answer.result)
        return data if command != "fit" else {key: data[key] for key in ("returns", "graph", "structure")}


def write_logs(root: Path) -> list[Path]:
    """The same episodes in each format."""
    rng, episodes, steps = np.random.default_rng(0), 16, 5
    states = rng.integers(0, 3, (episodes, steps + 1, 2)).astype(np.float64)
    pushes, totals = rng.random((episodes, steps, 1)), states[:, :-1, 0].sum(axis=1)
    flat, numbers = states[:, :-1].reshape(-1, 2), np.repeat(np.arange(episodes), steps)
    paid = np.where(np.arange(len(flat)) % steps == steps - 1, totals[numbers], 0.0)
    columns = {"s_size": flat[:, 0], "s_kind": flat[:, 1], "a_push": pushes.reshape(-1)}
    logs = [root / f"log.{ending}" for ending in ("csv", "parquet", "npz", "h5", "jsonl")]
    place = {"episode": numbers, "step": np.tile(np.arange(steps), episodes)}
    table = polars.DataFrame({**place, **columns, "outcome": totals[numbers]})
    table.write_csv(logs[0])
    table.write_parquet(logs[1])
    listed = table.select(*columns).to_dicts()
    parts = [listed[start : start + steps] for start in range(0, len(listed), steps)]
    lines = [{"outcome": each, "steps": part} for each, part in zip(totals.tolist(), parts, strict=True)]
    logs[4].write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    arrays: Any = {"observations": states, "actions": pushes, "totals": totals}
    arrays |= {"observation_names": ["s_size", "s_kind"], "action_names": ["a_push"]}
    np.savez(logs[2], lengths=np.full(episodes, steps), **arrays)
    with h5py.File(logs[3], "w") as file:
        file["observations"], file["actions"] = flat, pushes.reshape(-1, 1)
        file["rewards"], file["terminals"] = paid, np.arange(len(paid)) % steps == steps - 1
    return logs


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


def _page(path: Path) -> Any:
    """The data of a page, but for when it was made."""
    text = re.search(r'id="data">([^<]*)<', path.read_text("utf-8"))
    assert text is not None
    data = json.loads(gzip.decompress(base64.b64decode(text[1])))
    return data | {"made": None}


def _state(run: RunFolder) -> Any:
    """What a resumed run comes to, but for times and for what is only about files."""
    loaded = checkpoint.load(run.checkpoints)
    arrays = {name: each for name, each in loaded.tree.items() if name != "log"}
    entries = [{key: each[key] for key in each if key != "seconds"} for each in run.read_metrics()]
    readable = ((run.edges, run.edge_steps()), (run.episodes, run.episode_steps()))
    files = [place(folder, step) for folder, steps in readable for step in steps]
    return {
        "arrays": {name: array.tobytes() for name, array in arrays.items()},
        "entries": entries,
        "files": {str(path): path.read_bytes() for path in files},
        "config": run.read_config(),
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
