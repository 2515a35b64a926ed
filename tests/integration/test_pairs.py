"""Methods train with backbones, on episodes and on windows: briefly, but through the real loop."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from apportion.backbones import BACKBONES
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training.loop import online, open_pool
from apportion.training.settings import Config, Schedule

pytestmark = pytest.mark.slow

SMALL = {
    "hidden": (4,),
    "critic_hidden": (4,),
    "batch_size": 16,
    "segments": 3,
    "update_every": 2,
    "width": 8,
    "cells": 8,
}
SMALL |= {"lessons": 4, "lessons_per_update": 2, "best": 3, "stored": 4, "layers": 1}
SCHEDULE = Schedule(
    300, 100, 2, warmup_steps=100, evaluate_every=300, replay_steps=1100, evaluation_episodes=1, workers=0
)
# An environment for each kind of action, windows of payment for one of them.
ENVIRONMENTS = {
    False: EnvConfig("apportion/Greenhouse-v0", delay="10-20"),
    True: EnvConfig("CartPole-v1", max_episode_steps=30),
}


def _small(config: Any) -> Any:
    names = {field.name for field in fields(config)}
    return replace(config, **{name: value for name, value in SMALL.items() if name in names})


ONLINE = [name for name, entry in BACKBONES.items() if not entry.make(entry.config()).offline]


# Each method with one backbone, in turn, and GRD with each: what they owe each other are contracts, which
# the conformance suite checks one by one.
PAIRS = {(method, ONLINE[number % len(ONLINE)]) for number, method in enumerate(METHODS)}
PAIRS |= {("grd", backbone) for backbone in ONLINE}


@pytest.mark.parametrize(("method", "backbone"), sorted(PAIRS))
def test_a_pair_trains(method: str, backbone: str) -> None:
    discrete = BACKBONES[backbone].make(BACKBONES[backbone].config()).discrete is True
    config = Config(
        ENVIRONMENTS[discrete],
        method=method,
        method_config=_small(METHODS[method].config()),
        backbone=backbone,
        backbone_config=_small(BACKBONES[backbone].config()),
        schedule=SCHEDULE,
    )
    with open_pool(config) as pool:
        *_, before, last = online(config, pool)
    for snapshot in (before, last):
        assert snapshot.metrics
        assert all(np.isfinite(values).all() for values in snapshot.metrics.values())
    report = last.reports[-1]
    assert np.isfinite(report.evaluation.returns).all()
    [[episode]] = report.evaluation.episodes
    assert episode["redistributed"].shape == episode["true_rewards"].shape
    assert np.isfinite(episode["redistributed"]).all()
