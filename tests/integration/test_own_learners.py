"""A method or backbone of one's own, named as module:name, serves like one that comes with the package."""

from pathlib import Path

import pytest

from apportion.core import registry
from driver import GREENHOUSE, Run, apportion, tiny, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained with a worker process, which imports the backbone's head."""
    flags = "--method.factor 3 --method.hidden 8 --backbone own_learners:make_backbone --workers 1"
    out = tmp_path_factory.mktemp("own") / "run"
    return train(out, GREENHOUSE, *tiny("own_learners:make"), *flags.split())


def test_their_settings_are_flags_and_are_recorded_and_to_show_them_imports_nothing(
    own_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = own_run.read_config()
    assert config["method"]["name"] == "own_learners:make"
    assert config["method"]["factor"] == 3
    assert config["backbone"]["name"] == "own_learners:make_backbone"

    def refuse(*names: str) -> None:
        raise AssertionError(names)

    registry._import.cache_clear()
    monkeypatch.setattr(registry, "import_name", refuse)
    assert apportion("show", own_run.path).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "RUN", "--episodes", "1"),
        ("explain", "RUN", "--background", "2", "--step", "0"),
        ("export", "RUN", "--out", "FOLDER/policy.npz"),
        ("report", "RUN", "--out", "FOLDER/page.html"),
        ("show", "RUN"),
    ],
    ids=lambda words: words[0],
)
def test_every_verb_that_reads_a_run_finds_them(words: tuple[str, ...], own_run: Run, tmp_path: Path) -> None:
    places = {"RUN": str(own_run.path), "FOLDER": str(tmp_path)}
    argv = [word.replace("FOLDER", places["FOLDER"]).replace("RUN", places["RUN"]) for word in words]
    answer = apportion(*argv)
    assert answer.code == 0, answer.err


def test_a_run_of_theirs_can_be_resumed(own_run: Run) -> None:
    assert apportion("resume", own_run.path, "--steps", "2200", "--quiet").code == 0


@pytest.mark.parametrize(
    ("flag", "name", "reason"),
    [
        ("--method", "nowhere:make", "cannot import the module 'nowhere'"),
        ("--method", "own_learners:mak", "there is no 'mak' in own_learners (did you mean 'make'?)"),
        ("--method", "./own_learners.py:make", "is a path, not a module"),
        ("--method", "own_learners:Doubled", "is no function that makes one"),
        ("--method", "subprocess:run", "is no function that makes one"),
        ("--method", "own_learners:undocumented", "is no function that makes one"),
        ("--method", "own_learners:needy", "give its setting rate a default"),
        ("--method", "own_learners:nothing", "made no Method but a NoneType"),
        ("--method", "own_learners:column", "reward has shape (16, 1): (16,) is needed"),
        ("--method", "own_learners:growing", "update makes float32[11] of the state's memory"),
        ("--method", "own_learners:shrinking", "rescale makes float32[] of the state's memory"),
        ("--method", "own_learners:failing", "raised AttributeError"),
        ("--backbone", "own_learners:make", "made no Backbone but a Method"),
        ("--backbone", "own_learners:crooked", "its head own_head:crooked has shape (2,): (3,) is needed"),
        ("--backbone", "own_learners:headless", "there is no 'cut_off' in own_head"),
    ],
)
def test_what_breaks_its_contract_is_refused_in_one_line(
    flag: str, name: str, reason: str, out: Path
) -> None:
    answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), flag, name)
    assert (answer.code, answer.out) in ((1, ""), (2, ""))
    assert reason in answer.err.splitlines()[-1]
    assert answer.err.splitlines()[-1].startswith("error: ")
    assert not out.exists()
