"""Free texts become vectors: by hashes of their words, or by somebody's own function where it was named."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_data import SMALL

import apportion
from apportion.core.config import UserError, from_dict, to_dict
from apportion.data.columns import Columns
from apportion.data.encoding import Encoding
from apportion.data.reading import read_log
from apportion.data.texts import WIDTH, hashing
from apportion.runs.logged import read_for

SAID = {"rain": -2.0, "sun": 2.0, "wind": 0.0}


def lines(count: int = 150) -> list[dict[str, Any]]:
    """Every text is another; one word of it earns."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        words = [str(word) for word in rng.choice(list(SAID), rng.integers(2, 5))]
        turns = [{"note": f"today {word}, page {number} {place}"} for place, word in enumerate(words)]
        turns[0]["note"] = turns[0]["note"] if number else None
        outcome = sum(SAID[word] for word in words[not number :]) + 0.1 * rng.normal()
        found.append({"outcome": outcome, "turns": turns})
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines()))
    return path


def test_hashes_are_the_same_everywhere_and_near_for_texts_that_share_words() -> None:
    texts = ["Read the file, then the test", "read the file then the TEST!", "write the file", "zebra", ""]
    found = hashing(texts)
    assert found.shape == (5, WIDTH)
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0] @ found[2] > found[0] @ found[3]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 1, 0], rtol=1e-6)
    assert np.flatnonzero(found[3]).tolist() == [53]  # runs keep what was learned of these places


def test_texts_are_refused_with_what_to_do(log: Path) -> None:
    with pytest.raises(UserError, match="--embed hashing"):
        read_log(str(log), Columns())


def test_an_embedder_without_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"outcome": 1, "turns": [{"s": 1}, {"s": 2}]}\n')
    with pytest.raises(UserError, match="leave out --embed hashing"):
        read_log(str(tmp_path / "log.jsonl"), Columns(embed="hashing"))


def test_a_column_of_texts_is_one_input(log: Path) -> None:
    read = read_log(str(log), Columns(embed="hashing"))
    assert set(read.log.inputs) == {"note"}
    assert read.log.observations[1].shape[1] == WIDTH
    assert not read.log.observations[0][0].any()  # a text that is missing has no words
    again = from_dict(Encoding, to_dict(read.encoding))
    assert (again.texts, again.embed) == (("note",), "hashing")


def test_relabelling_finds_the_words_that_earned(log: Path, tmp_path: Path) -> None:
    run = apportion.fit(log, embed="hashing", out=tmp_path / "run", settings=SMALL, quiet=True)
    new = apportion.relabel(run, log, tmp_path / "new.jsonl")
    turns = [turn for line in Path(new).read_text().splitlines() for turn in json.loads(line)["turns"]]
    truth = [sum(SAID[word] for word in SAID if word in (turn["note"] or "")) for turn in turns]
    assert np.corrcoef([turn["reward"] for turn in turns], truth)[0, 1] > 0.9


def test_somebodys_own_embedder_is_imported_only_where_it_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_texts.py").write_text(
        "import numpy as np\n\n"
        "def count(texts):\n"
        "    return np.array([[text.count(word) for word in ('rain', 'sun')] for text in texts])\n\n"
        "def wrong(texts):\n    return np.zeros(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    named = {"embed": "own_texts:count"}
    run = apportion.fit(log, out=tmp_path / "run", settings=SMALL, quiet=True, **named)
    with pytest.raises(UserError, match="it must give numbers"):
        read_log(str(log), Columns(embed="own_texts:wrong"))
    with pytest.raises(UserError, match="no 'other'"):
        read_log(str(log), Columns(embed="own_texts:other"))
    monkeypatch.delitem(sys.modules, "own_texts")
    with pytest.raises(UserError, match="say --embed own_texts:count again"):
        apportion.relabel(run, log, tmp_path / "new.jsonl")
    with pytest.raises(UserError, match="say --embed own_texts:count again"):
        run.explain(episode=log)
    assert "own_texts" not in sys.modules
    explained = run.explain(episode=log, steps=[0], **named)["lanes"][0]
    assert explained["ranking"] == ["note"]
    assert read_for(run.folder, str(log), **named)[1].observation_names == ("note[0]", "note[1]")
