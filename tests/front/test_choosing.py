"""Settings by name: those of the flags, in place of what suits the task."""

from typing import Any

import pytest

from apportion.core.config import UserError
from apportion.front.choosing import Chosen, Job
from apportion.runs.settings import Checkpoints
from apportion.training.presets import GREENHOUSE, paper, preset


def _chosen(env: Any = GREENHOUSE, method: str = "grd", start: str = "default", **settings: Any) -> Chosen:
    return Job("", env, method, preset=start, settings=settings.pop("settings", settings)).chosen()


def test_without_settings_it_is_what_suits_the_task() -> None:
    assert _chosen() == Chosen(preset(GREENHOUSE, "grd", "sac"), Checkpoints())
    assert _chosen(start="paper").config == paper(preset(GREENHOUSE, "grd", "sac"))
    assert _chosen("CartPole-v1").config.backbone == "dqn"
    assert _chosen("Swimmer-v4").config.backbone == "crossq"
    assert _chosen("Swimmer-v4", start="paper").config.backbone == "sac"


@pytest.mark.parametrize("backbone", ["sac", "crossq"])
@pytest.mark.parametrize("method", ["grd", "oracle"])
def test_swimmers_look_far_ahead_except_as_published(method: str, backbone: str) -> None:
    config = preset("Swimmer-v4", method, backbone)
    assert config.backbone_config.discount == 0.999
    assert config.backbone_config.critic_pool == "mean"
    elsewhere = preset("Hopper-v4", method, backbone).backbone_config
    assert paper(config).backbone_config == elsewhere != config.backbone_config


def test_humanoids_critics_are_wide_except_as_published() -> None:
    config = preset("Humanoid-v4", "grd", "crossq")
    assert config.backbone_config.critic_hidden == (1024, 1024)
    assert paper(config).backbone_config.critic_hidden == (512, 512)
    assert (
        preset("Humanoid-v4", "grd", "sac").backbone_config == preset("Ant-v4", "grd", "sac").backbone_config
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"method.hidden": (4, 4), "warmup_steps": 7, "env.delay": "5", "keep": 3},
        {"method.hidden": [4, 4], "warmup-steps": 7, "env.delay": "5", "checkpoints.keep": 3},
        {
            "method": {"hidden": (4, 4)},
            "schedule": {"warmup_steps": 7},
            "env": {"delay": "5"},
            "checkpoints": {"keep": 3},
        },
    ],
    ids=["dotted", "like flags", "nested"],
)
def test_settings_may_be_dotted_or_nested(settings: dict[str, Any]) -> None:
    config, checkpoints = _chosen(settings=settings)
    assert (config.method_config.hidden, config.schedule.warmup_steps) == ((4, 4), 7)
    assert (config.env.delay, checkpoints.keep) == ("5", 3)
    assert config.backbone_config == preset(GREENHOUSE, "grd", "sac").backbone_config


def test_normalising_is_a_setting_like_any_other() -> None:
    assert _chosen().config.normalise
    assert not _chosen(settings={"normalise": False}).config.normalise


def test_a_whole_number_may_be_written_as_a_float() -> None:
    steps = _chosen(settings={"steps": 1e5}).config.schedule.steps
    assert (steps, type(steps)) == (100_000, int)


def test_a_delay_may_be_a_number() -> None:
    assert _chosen(settings={"env.delay": 20}).config.env.delay == "20"


def test_constructor_arguments_may_be_a_dict() -> None:
    assert _chosen(settings={"env.kwargs": {"wind": 0.2}}).config.env.kwargs == '{"wind": 0.2}'
    assert _chosen(settings={"env": {"kwargs": {"wind": 0.2}}}).config.env.kwargs == '{"wind": 0.2}'


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"settings": {"method.hiden": 1}}, "unknown setting 'method.hiden' (did you mean 'method.hidden'?)"),
        (
            {"settings": {"warm_up_steps": 1}},
            "unknown setting 'warm_up_steps' (did you mean 'warmup_steps'?)",
        ),
        ({"method": "gdr"}, "unknown method 'gdr' (did you mean 'grd'?)"),
        ({"start": "papers"}, "unknown preset 'papers' (did you mean 'paper'?)"),
        ({"settings": {"steps": 0}}, "steps=0 must be at least 1"),
        ({"settings": {"steps": "many"}}, "schedule.steps='many' must be a whole number"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest_that_does(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError) as refused:
        _chosen(**arguments)
    assert str(refused.value).startswith(reason)
