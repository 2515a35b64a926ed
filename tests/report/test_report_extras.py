"""Contributions and pictures on the page are those of the stored episode, from a real if tiny training."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from apportion.report.episodes import Extra, Place, make_extras
from apportion.runs import checkpoint
from apportion.runs.folder import RunFolder
from driver import GREENHOUSE, train

TINY = "--workers 0 --quiet --steps 400 --warmup-steps 200 --evaluate-every 400 --evaluation-episodes 1"
TINY += " --steps-per-iteration 100 --updates-per-iteration 2 --backbone.batch-size 8 --backbone.hidden 8"
TINY += " --method rd --method.hidden 8"


@pytest.fixture(scope="module")
def run(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("extras") / "run"
    return train(out, GREENHOUSE, *TINY.split())


def test_contributions_add_up_to_the_redistributed_reward_and_pictures_are_taken(run: RunFolder) -> None:
    said: list[str] = []
    extras = make_extras(run, lanes=1, always=False, say=said.append)
    episode = run.read_episodes(400)[0][0]
    found = extras(Place(400, 0, 0), episode)
    assert found.contributions is not None
    steps = np.flatnonzero(np.isfinite(found.contributions).all(axis=1))
    assert steps.tolist() == list(range(len(episode["actions"])))  # a short episode is explained whole
    credited = found.contributions.sum(axis=1) + found.baseline
    np.testing.assert_allclose(credited[steps], episode["redistributed"][steps], atol=1e-4)
    assert len(found.frames) == 30
    assert all(picture.startswith(b"\xff\xd8\xff") for picture in found.frames.values())
    assert said == []


def test_other_episodes_have_none(run: RunFolder) -> None:
    extras = make_extras(run, lanes=1, always=False, say=lambda line: None)
    episode = run.read_episodes(400)[0][0]
    for place in (Place(200, 0, 0), Place(400, 1, 0), Place(400, 0, 1)):
        assert extras(place, episode) == Extra()


def test_it_says_why_there_are_none(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    episode = copy.read_episodes(400)[0][0]
    episode.pop("seed")
    newest = checkpoint.load(copy.checkpoints)
    shutil.rmtree(copy.checkpoints)
    checkpoint.save(copy.checkpoints, 300, newest.tree, newest.meta, 1)
    said: list[str] = []
    assert make_extras(copy, 1, False, said.append)(Place(400, 0, 0), episode) == Extra()
    assert said[0] == "no contributions: the newest checkpoint is of step 300, the episodes of 400"
    assert said[1].startswith("no pictures: ")
