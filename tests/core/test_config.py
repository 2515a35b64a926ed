"""Configs survive the way through JSON; misspelt settings are named, with what was probably meant."""

import dataclasses
import json
from typing import Any

import pytest

from apportion.backbones import BACKBONES
from apportion.core.config import UserError, nearest, to_dict
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training.presets import GREENHOUSE, preset
from apportion.training.settings import Config, Schedule

EACH_ONCE = [(method, [*BACKBONES][number % len(BACKBONES)]) for number, method in enumerate(METHODS)]


@pytest.mark.parametrize(("method", "backbone"), EACH_ONCE)
def test_a_whole_training_survives_json(method: str, backbone: str) -> None:
    env = EnvConfig("HalfCheetah-v4", delay="10-30", max_episode_steps=50)
    schedule = Schedule(steps=5, workers=0)
    config = Config(env, method=method, backbone=backbone, schedule=schedule, seed=3, lanes=2)
    data = json.loads(json.dumps(config.to_dict()))
    assert Config.from_dict(data) == config
    assert Config.from_dict(data).seeds == [3, 4]


def test_a_training_from_when_steps_were_imagined_is_still_read() -> None:
    config = Config(EnvConfig("HalfCheetah-v4"))
    assert Config.from_dict({**config.to_dict(), "imagine": {"share": 0.5, "after": 500}}) == config


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lane": 1}, r"unknown setting lane \(did you mean 'lanes'\?\)"),
        ({"schedule": {"step": 1}}, r"unknown setting schedule\.step \(did you mean 'steps'\?\)"),
        (
            {"method": {"name": "rd", "hiden": 1}},
            r"unknown setting method\.hiden \(did you mean 'hidden'\?\)",
        ),
        ({"method": {"name": "oracel"}}, r"unknown method 'oracel' \(did you mean 'oracle'\?\)"),
    ],
)
def test_what_a_training_does_not_know_is_named(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Config.from_dict(Config(EnvConfig("HalfCheetah-v4")).to_dict() | change)


@pytest.mark.parametrize("entry", [*METHODS.values(), *BACKBONES.values()], ids=[*METHODS, *BACKBONES])
def test_every_registered_config_is_frozen_and_says_what_it_is(entry: Any) -> None:
    assert dataclasses.is_dataclass(entry.config)
    assert entry.config.__dataclass_params__.frozen
    assert entry.config.__doc__.splitlines()[0].endswith(".")


def test_where_nothing_is_near_all_known_names_are_listed() -> None:
    assert nearest("xyz", ["grd", "oracle"]) == " (known: grd, oracle)"


@pytest.mark.parametrize("method", METHODS)
def test_networks_for_the_greenhouse_are_small(method: str) -> None:
    """Whatever has networks there is set up to train in minutes."""
    config = preset(GREENHOUSE, method, "sac")
    assert isinstance(config.method_config, METHODS[method].config)
    assert to_dict(config.method_config).get("hidden", (64, 64)) == (64, 64)
