"""One step of ours beside one of each peer, where peers are installed."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from apportion.training.loop import Snapshot
from apportion.training.presets import GREENHOUSE, preset
from lib import peers

pytestmark = pytest.mark.slow


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


def test_everyone_takes_the_same_steps_and_ratios_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    seen: list[Snapshot] = []
    online = peers.train.online
    monkeypatch.setattr(peers.train, "online", lambda *about: (seen.append(s) or s for s in online(*about)))
    monkeypatch.setitem(peers.PEERS, "idle", ("pytest", lambda env_id: taken.append))
    monkeypatch.setitem(peers.PEERS, "nobody", ("no_such_package", peers.sb3_sac))
    assert {"idle"} <= set(peers.installed()) - {"nobody"}
    found = peers.compare(GREENHOUSE, steps=600, rounds=2, report=lambda line: None, names=["idle"])
    assert taken == [600] * 3  # once to warm up
    # What is timed of ours is training: past its random steps, with updates whose numbers move.
    assert np.diff([snapshot.step for snapshot in seen[-4:]]).tolist() == [600] * 3
    assert seen[-4].step >= peers.WARMUP
    losses = [float(snapshot.metrics["critic_loss"][0]) for snapshot in seen[-3:]]
    assert np.isfinite(losses).all()
    assert len(set(losses)) == 3
    theirs, ours = found["milliseconds"]["idle"], found["milliseconds"][peers.OURS]
    assert found["ratios"]["idle"] == pytest.approx(np.mean(np.divide(theirs, ours)))


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of all environments of its kind."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return super().step(action)


@pytest.mark.parametrize("name", [name for name in peers.installed() if name != "sbx_sac"])
def test_a_peer_is_past_its_warm_up_and_takes_as_many_steps_as_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SBX compiles for longer than a test should take."""
    make = peers._environment
    monkeypatch.setattr(Counted, "steps", 0)
    monkeypatch.setattr(peers, "_environment", lambda env_id: Counted(make(env_id)))
    steps = peers.PEERS[name][1]("Pendulum-v1")
    before = Counted.steps
    assert before > 0 if name == "torch_eager_grd" else before == peers.WARMUP + 1
    steps(3)
    assert Counted.steps == before + 3
