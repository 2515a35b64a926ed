"""One step of ours beside one of each peer, where peers are installed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from apportion.training.loop import Snapshot
from apportion.training.presets import GREENHOUSE, paper, preset
from lib import peers

pytestmark = pytest.mark.slow


def quiet(line: str) -> None:
    pass


def test_ours_is_the_default_training() -> None:
    """But for its short warm-up and no evaluation; shorter iterations keep the proportion."""
    default = preset("HalfCheetah-v4", "grd", "sac")
    ours, short = peers.our_config("HalfCheetah-v4"), peers.our_config("HalfCheetah-v4", steps=10)
    for config in (ours, short):
        assert config.method_config == default.method_config
        assert config.backbone_config == default.backbone_config
        schedule = config.schedule
        assert schedule.overlap == default.schedule.overlap
        assert schedule.updates_per_iteration == schedule.steps_per_iteration
    assert short.schedule.steps_per_iteration == 10


def test_as_published_is_the_paper_s_update_and_nothing_else_changes() -> None:
    ours = peers.our_config("HalfCheetah-v4")
    published = paper(ours)
    assert (published.method_config.structure, published.method_config.update_every) == ("gradient", 1)
    assert replace(published, method_config=ours.method_config, normalise=True) == ours


def test_iterations_that_cannot_be_shortened_stay() -> None:
    """600 steps and 50 updates: no 10 steps have a whole number of updates."""
    assert peers.our_config(GREENHOUSE, steps=10).schedule.steps_per_iteration == 600


def test_peers_that_are_not_installed_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "nobody", ("no_such_package", peers.sb3_sac))
    assert "nobody" not in peers.installed()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """All that our training yields."""
    found: list[Snapshot] = []
    online = peers.train.online

    def watched(*arguments: Any) -> Iterator[Snapshot]:
        for snapshot in online(*arguments):
            found.append(snapshot)
            yield snapshot

    monkeypatch.setattr(peers.train, "online", watched)
    return found


def test_everyone_takes_the_same_steps_and_ratios_follow(
    monkeypatch: pytest.MonkeyPatch, seen: list[Snapshot]
) -> None:
    taken: list[int] = []
    monkeypatch.setitem(peers.PEERS, "idle", ("pytest", lambda env_id: taken.append))
    found = peers.compare(GREENHOUSE, steps=600, rounds=2, report=quiet, names=["idle"])
    assert taken == [600] * 3  # once to warm up
    # What is timed of ours is training: past its random steps, with updates whose numbers move.
    assert np.diff([snapshot.step for snapshot in seen[-4:]]).tolist() == [600] * 3
    assert seen[-4].step >= peers.WARMUP
    losses = [float(snapshot.metrics["critic_loss"][0]) for snapshot in seen[-3:]]
    assert np.isfinite(losses).all()
    assert len(set(losses)) == 3
    theirs, ours = found["milliseconds"]["idle"], found["milliseconds"][peers.OURS]
    assert found["ratios"] == {
        "idle": pytest.approx(sum(their / our for our, their in zip(ours, theirs, strict=True)) / 2)
    }


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of all environments of its kind."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return super().step(action)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    make = peers._environment
    monkeypatch.setattr(Counted, "steps", 0)
    monkeypatch.setattr(peers, "_environment", lambda env_id: Counted(make(env_id)))
    return Counted


class Library:
    """As those of others are called: `learn` takes so many more steps."""

    def __init__(self, policy: str, env: Any, learning_starts: int, seed: int) -> None:
        assert learning_starts == peers.WARMUP
        self.env = env

    def learn(self, steps: int, reset_num_timesteps: bool = True) -> None:
        self.env.reset(seed=0)
        for _ in range(steps):
            *_, truncated, _ = self.env.step(self.env.action_space.sample())
            if truncated:
                self.env.reset()


def test_a_library_is_past_its_warm_up_and_takes_as_many_steps_as_asked(counted: type[Counted]) -> None:
    steps = peers._library_steps(Library, "Pendulum-v1")
    assert counted.steps == peers.WARMUP + 1
    steps(30)
    assert counted.steps == peers.WARMUP + 31


@pytest.mark.parametrize("name", [name for name in peers.installed() if name != "sbx_sac"])
def test_a_peer_takes_as_many_steps_as_asked(name: str, counted: type[Counted]) -> None:
    """SBX compiles for longer than a test should take."""
    steps = peers.PEERS[name][1]("Pendulum-v1")
    before = counted.steps
    steps(3)
    assert counted.steps == before + 3
