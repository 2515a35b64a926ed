"""Evaluations beside the training: they change nothing, none is lost, and their failures are told."""

from dataclasses import replace
from typing import Any

import pytest

from apportion.core.config import UserError
from apportion.envs.make import EnvConfig
from apportion.training import loop as train
from apportion.training.settings import Config, Schedule

SCHEDULE = Schedule(120, 20, 1, warmup_steps=40, evaluate_every=40, evaluation_episodes=2, replay_steps=500)
CONFIG = Config(EnvConfig("apportion/Greenhouse-v0"), method="oracle", schedule=SCHEDULE, lanes=2)


def _with_workers(workers: int) -> Config:
    return replace(CONFIG, schedule=replace(SCHEDULE, workers=workers))


def test_settle_brings_the_report_that_is_under_way() -> None:
    with train.open_pool(_with_workers(1)) as pool:
        found: list[int] = []
        for snapshot in train.online(_with_workers(1), pool):
            found += [report.step for report in [*snapshot.reports, *snapshot.settle()]]
            assert found == [step for step in (40, 80, 120) if step <= snapshot.step]
            assert snapshot.settle() == []


def test_who_stops_in_the_middle_of_an_evaluation_waits_for_nothing_else() -> None:
    with train.open_pool(_with_workers(1)) as pool:
        snapshots = train.online(_with_workers(1), pool)
        assert [next(snapshots).step, next(snapshots).step] == [20, 40]
        snapshots.close()  # type: ignore[attr-defined]


def test_a_failure_in_an_evaluation_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise UserError("the environment raised RuntimeError: the motor is hot")

    with train.open_pool(_with_workers(1)) as pool:
        monkeypatch.setattr(pool, "episodes", fail)
        with pytest.raises(UserError, match="the motor is hot"):
            list(train.online(_with_workers(1), pool))
