"""One step of ours beside one of each peer, where peers are installed."""

from dataclasses import replace

import pytest

from apportion.bench import peers
from apportion.training.presets import GREENHOUSE, paper, preset


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
    assert replace(published, method_config=ours.method_config) == ours


def test_iterations_that_cannot_be_shortened_stay() -> None:
    """600 steps and 50 updates: no 10 steps have a whole number of updates."""
    assert peers.our_config(GREENHOUSE, steps=10).schedule.steps_per_iteration == 600


def test_peers_that_are_not_installed_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "nobody", ("no_such_package", peers.sb3_sac))
    assert "nobody" not in peers.installed()


def test_everyone_takes_the_same_steps_and_ratios_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setitem(peers.PEERS, "idle", ("pytest", lambda env_id: taken.append))
    found = peers.compare(GREENHOUSE, steps=600, rounds=2, report=quiet, names=["idle"])
    assert taken == [600] * 3  # once to warm up
    theirs, ours = found["milliseconds"]["idle"], found["milliseconds"][peers.OURS]
    assert found["ratios"] == {
        "idle": pytest.approx(sum(their / our for our, their in zip(ours, theirs, strict=True)) / 2)
    }


@pytest.mark.parametrize("name", [name for name in peers.installed() if name != "sbx_sac"])
def test_a_peer_takes_steps(name: str) -> None:
    """SBX compiles for longer than a test should take."""
    steps = peers.PEERS[name][1]("Pendulum-v1")
    steps(3)
