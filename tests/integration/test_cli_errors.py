"""Every mistake a user can make gives one line that starts with `error:`, and no traceback."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apportion import __version__
from apportion.cli import VERBS
from apportion.methods import grd
from apportion.runs import recording
from apportion.training.settings import Config
from driver import GREENHOUSE, Answer, Run, apportion, refused, tiny
from faulty_envs import episode_seed

# --- Help


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_verb(words: tuple[str, ...]) -> None:
    answer = apportion(*words)
    assert (answer.code, answer.err) == (0, "")
    assert "usage: apportion VERB" in answer.out
    assert all(f"  {verb} " in answer.out for verb in VERBS)


@pytest.mark.parametrize(
    ("verb", "flags"),
    [
        ("train", ["--seeds", "--steps", "--env.delay", "--method.sparsity", "--backbone.hidden", "--keep"]),
        ("resume", ["--steps", "--quiet", "--json"]),
        ("sweep", ["tasks = ", "[vary]", "--engine", "--jobs", "--address", "--dry-run", "--json"]),
        ("eval", ["--episodes", "--noise", "--noise-dims", "--json"]),
        ("show", ["--quiet", "--json"]),
        ("identify", ["--json"]),
        ("list", ["methods", "backbones", "envs"]),
    ],
)
def test_help_of_each_verb(verb: str, flags: list[str]) -> None:
    answer = apportion(verb, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"usage: apportion {verb}")
    assert all(flag in answer.out for flag in flags)


def test_help_shows_the_settings_that_an_environment_starts_from() -> None:
    for words in ((), ("no-such-env",)):
        assert "(default: 1000000)" in " ".join(apportion("train", *words, "--help").out.split())
    assert "(default: 48000)" in " ".join(apportion("train", GREENHOUSE, "--help").out.split())
    assert "--backbone.final-epsilon" in apportion("train", "-h", "CartPole-v1").out


def test_version() -> None:
    assert apportion("--version") == Answer(0, f"apportion {__version__}\n", "")


def test_list() -> None:
    data = apportion("list", "--json").json
    assert data.keys() == {"methods", "backbones", "envs"}
    assert {"grd", "observed", "oracle"} <= data["methods"].keys()
    assert GREENHOUSE in data["envs"]
    answer = apportion("list", "methods")
    assert "grd" in answer.out
    assert GREENHOUSE not in answer.out


# --- The command line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["trian"], "unknown verb 'trian' (did you mean 'train'?)"),
        (["train"], "Missing from apportion train: ENV"),
        (["train", GREENHOUSE, "--stepz", "5"], "Unrecognized options: --stepz, 5: did you mean --steps?"),
        (["train", GREENHOUSE, "--steps", "many"], "Error parsing --steps: 'many' is not a number"),
        (["train", GREENHOUSE, "--steps", "1.5"], "Error parsing --steps: '1.5' is not a whole number"),
        (["train", GREENHOUSE, "--steps", "inf"], "Error parsing --steps: 'inf' is not a whole number"),
        (["train", GREENHOUSE, "--steps"], "Missing value for argument '--steps'"),
        (["train", GREENHOUSE, "--method.compact", "some"], "invalid choice 'some' for argument"),
        (
            ["train", GREENHOUSE, "--method", "oracle", "--method.hidden", "8"],
            "method oracle has no setting 'hidden': it has none",
        ),
        (
            ["train", GREENHOUSE, "--backbone", "td3", "--backbone.initial_temperature=1"],
            "backbone td3 has no setting 'initial-temperature' (known: actor-every,",
        ),
        (["fit", "log.csv", "--method.no-bse"], "method grd has no setting 'no-bse'"),
        (["train", GREENHOUSE, "--method.sparsity", "1", "2"], "Expected 5 values"),
        (["list", "everything"], "invalid choice 'everything'"),
        (["show"], "Missing from apportion show: RUN"),
        (["resume", "runs/a", "--steps", "0"], "--steps 0 must be at least 1"),
        (["compare"], "no run folder given: name at least one"),
        (["compare", "RUN", "--figure", "curves.doc"], "no figure as 'curves.doc': let its name end in .svg"),
        (["compare", "RUN", "--at", "-1"], "--at -1 must not be negative"),
        (["compare", "RUN", "--metric", "fame"], "invalid choice 'fame'"),
    ],
)
def test_a_wrong_command_line_is_code_2(words: list[str], reason: str) -> None:
    refused(apportion(*words), 2, reason)


def test_null_characters_are_refused_where_a_program_passes_them() -> None:
    refused(apportion("compare", "runs\0"), 1, "a word with a null character")


class _Terminal(io.StringIO):
    """What tyro draws coloured boxes for."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdout", [_Terminal(), io.StringIO()])
def test_the_line_is_the_same_on_a_terminal(stdout: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    answer = apportion("train", GREENHOUSE, "--stepz", "5", stdout=stdout)
    line = "Unrecognized options: --stepz, 5: did you mean --steps? (see apportion train --help)"
    assert answer == Answer(2, "", f"error: {line}\n")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--steps", "0"], "steps=0 must be at least 1"),
        (["--seeds", "0"], "seeds=0 must be from 1 to 10,000"),
        (["--seeds", "1000000000"], "seeds=1000000000 must be from 1 to 10,000"),
        (["--seed", "-1"], "seed=-1 must not be negative"),
        (["--seed", "4294967295", "--seeds", "2"], "seed=4294967295 is too large: the last lane's"),
        (["--keep", "0"], "keep=0 must be at least 1"),
        (["--method", "gdr"], "unknown method 'gdr' (did you mean 'grd'?)"),
        (["--backbone.discount", "1"], "backbone.discount=1.0 must be in [0, 1)"),
        (["--env.kwargs", "{"], "--env.kwargs '{' is not JSON"),
    ],
)
def test_a_setting_that_cannot_be(flags: list[str], reason: str, out: Path) -> None:
    refused(apportion("train", GREENHOUSE, "--out", out, *flags), 2, reason)
    assert not out.exists()


def _settings_of(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Config:
    """What a training with these flags would be given."""
    configs: list[Config] = []

    def only_look(config: Config, *rest: Any) -> Any:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "train", only_look)
    assert apportion("train", GREENHOUSE, *flags) == Answer(130, "", "error: interrupted\n")
    return configs[0]


@pytest.mark.parametrize("steps", ["1000", "1e3", "1_000", "1.0e3"])
def test_numbers_as_people_write_them(steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--steps", steps, f"--checkpoint-every={steps}", "--method=oracle")
    config = _settings_of(monkeypatch, *flags)
    assert config.schedule.steps == 1000
    assert config.method == "oracle"


def test_of_a_flag_given_twice_the_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _settings_of(monkeypatch, "--method", "rd", "--method=grd", "--method.segments", "3")
    assert isinstance(config.method_config, grd.Config)
    assert config.method_config.segments == 3


# --- Environments


@pytest.mark.parametrize(
    ("env", "flags", "reason"),
    [
        ("Greenhouse-v0", [], "unknown environment 'Greenhouse-v0': did you mean apportion/Greenhouse-v0?"),
        ("odd_envs:Buttons-v0", [], "odd_envs:Buttons-v0 has discrete actions: add --backbone dqn"),
        (GREENHOUSE, ["--backbone", "dqn"], "dqn needs discrete actions, apportion/Greenhouse-v0 has contin"),
    ],
)
def test_an_environment_that_cannot_be_used(
    env: str, flags: list[str], reason: str, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(apportion("train", env, "--out", out, *flags), 1, reason)
    assert capfd.readouterr() == ("", "")
    assert not out.exists()


def _failing(how: str, out: Path) -> Answer:
    """A strict training whose first seed's second episode fails at its third step."""
    kwargs = json.dumps({"how": how, "seeds": [episode_seed(0, 1)]})
    flags = tiny("grd", "--workers", "1", "--strict", "--env.kwargs", kwargs)
    return apportion("train", "faulty_envs:Faulty-v0", "--out", out, *flags)


def test_an_environment_that_goes_nan(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    where = "faulty_envs:Faulty-v0, seed 0, episode 1, step 3: observation has nan in dimension 0 (s0)"
    assert _failing("nonsense", out) == Answer(1, "", f"error: {where}: give its last good number instead\n")
    assert capfd.readouterr() == ("", "")


def test_an_environment_that_raises(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One line says what; the traceback above it is the environment's own, for its author."""
    answer = _failing("raises", out)
    assert (answer.code, answer.out) == (1, "")
    *above, last = (capfd.readouterr().err + answer.err).splitlines()
    assert last == "error: the environment raised RuntimeError: the motor is hot"
    assert above[0] == "Traceback (most recent call last):"
    assert any("faulty_envs.py" in line for line in above)
    assert not any("training.py" in line for line in above)


# --- Run folders


def test_a_folder_that_exists_or_cannot_be(greenhouse_run: Run, tmp_path: Path) -> None:
    before = greenhouse_run.config.read_bytes()
    answer = apportion("train", GREENHOUSE, "--out", greenhouse_run.path)
    refused(answer, 1, f"run folder {greenhouse_run.path} exists: choose another --out")
    assert greenhouse_run.config.read_bytes() == before
    (tmp_path / "file").touch()
    answer = apportion("train", GREENHOUSE, "--out", tmp_path / "file" / "run")
    refused(answer, 1, f"error: Not a directory: {tmp_path}")


@pytest.mark.parametrize(
    ("verb", "flags", "code", "reason"),
    [
        (
            "eval",
            ["--noise", "1", "--noise-dims", "radio"],
            1,
            "no dimension 'radio': give numbers 0 to 9, or",
        ),
        (
            "eval",
            ["--noise", "1", "--noise-dims", "10"],
            1,
            "no dimension '10': give numbers 0 to 9, or names",
        ),
        ("eval", ["--noise-dims", "leaf mass"], 2, "--noise-dims needs a --noise above 0"),
        ("eval", ["--noise", "-1"], 2, "--noise -1.0 must not be negative"),
        ("eval", ["--episodes", "0"], 2, "--episodes 0 must be at least 1"),
        ("eval", ["--seed", "-1"], 2, "--seed -1 must not be negative"),
        ("eval", ["--video", "film.avi"], 1, "--video film.avi: the file's name must end in .mp4"),
        ("explain", ["--lane", "2"], 1, "no lane 2: "),
        ("explain", ["--step", "10"], 1, "--step 10 is beyond every episode, of 10 steps at most"),
        ("explain", ["--seed", "1", "--episode", "log.npz"], 2, "give --episode or --seed, not both"),
        ("explain", ["--episode", "nowhere.npz"], 1, "no file nowhere.npz"),
        ("explain", ["--plot", "a.gif"], 2, "--plot a.gif: the file's name must end in one of .svg, .png"),
        ("explain", ["--plot", "/no/a.svg"], 2, "--plot /no/a.svg: there is no folder /no"),
        ("export", ["--out", "a.onnx"], 2, "a.onnx: the name of an exported policy must end in .npz"),
        ("export", ["--out", "a.npz", "--lane", "2"], 1, "no lane 2: "),
        ("export", ["--out", "a.npz", "--lane", "-1"], 2, "--lane -1 must not be negative"),
    ],
)
def test_what_a_run_cannot_be_asked_for(
    verb: str,
    flags: list[str],
    code: int,
    reason: str,
    greenhouse_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(apportion(verb, greenhouse_run.path, *flags), code, reason)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_may_lack_our_signs(encoding: str, greenhouse_run: Run) -> None:
    """Such as the lines of a table."""
    command = [sys.executable, "-m", "apportion", "show", greenhouse_run.path]
    answer = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert b"reward correlation" in answer.stdout


# --- Whoever reads our output may leave early, or not be there at all: what was asked for is done


def _shell(script: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """A line of shell, in which "$@" is our command with these words."""
    ours = [sys.executable, "-m", "apportion", *map(str, words)]
    command = ["bash", "-o", "pipefail", "-c", script, "bash", *ours]
    return subprocess.run(command, capture_output=True, text=True, check=False)


NO_READER = ('"$@" >&-', '"$@" | head -c 1', '"$@" >/dev/null 2>&-')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        *((script, ["list", "methods"]) for script in NO_READER),
        (NO_READER[1], ["list", "methods", "--json"]),
        *((script, ["--help"]) for script in NO_READER),
    ],
)
def test_what_is_printed_may_find_no_reader(script: str, words: list[str]) -> None:
    found = _shell(script, *words)
    assert found.returncode == 0
    assert found.stderr == ""
