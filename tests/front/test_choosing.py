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


@pytest.mark.parametrize(
    ("env", "backbone", "changes"),
    [
        ("Swimmer-v4", "sac", {"discount": 0.999, "critic_pool": "mean"}),
        ("Swimmer-v4", "crossq", {"discount": 0.999, "critic_pool": "mean"}),
        ("Humanoid-v4", "sac", {}),
        ("Humanoid-v4", "crossq", {"critic_hidden": (1024, 1024)}),
    ],
)
def test_swimmers_look_far_ahead_and_humanoids_critics_are_wide_except_as_published(
    env: str, backbone: str, changes: dict[str, Any]
) -> None:
    config = preset(env, "grd", backbone)
    elsewhere = preset("Hopper-v4", "grd", backbone).backbone_config
    assert {name: getattr(config.backbone_config, name) for name in changes} == changes
    assert (config.backbone_config == elsewhere) == (not changes)
    assert paper(config).backbone_config == elsewhere


@pytest.mark.parametrize(
    "settings",
    [
        {"method.hidden": (4, 4), "warmup_steps": 7, "env.delay": "5", "keep": 3},
        {"method.hidden": [4, 4], "warmup-steps": 7, "env.delay": 5, "checkpoints.keep": 3},
        {"method": {"hidden": (4, 4)}, "schedule": {"warmup_steps": 7.0}, "env": {"delay": 5}, "keep": 3},
    ],
    ids=["dotted", "like flags", "nested"],
)
def test_settings_may_be_dotted_or_nested_and_numbers_as_people_write_them(settings: dict[str, Any]) -> None:
    config, checkpoints = _chosen(settings=settings)
    assert (config.method_config.hidden, config.env.delay, checkpoints.keep) == ((4, 4), "5", 3)
    assert (config.schedule.warmup_steps, type(config.schedule.warmup_steps)) == (7, int)
    assert config.backbone_config == preset(GREENHOUSE, "grd", "sac").backbone_config
    assert config.normalise
    assert not _chosen(settings={**settings, "normalise": False}).config.normalise


@pytest.mark.parametrize("settings", [{"env.kwargs": {"wind": 0.2}}, {"env": {"kwargs": {"wind": 0.2}}}])
def test_constructor_arguments_may_be_a_dict(settings: dict[str, Any]) -> None:
    assert _chosen(settings=settings).config.env.kwargs == '{"wind": 0.2}'


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"settings": {"method.hiden": 1}}, "unknown setting 'method.hiden' (did you mean 'method.hidden'?)"),
        ({"start": "papers"}, "unknown preset 'papers' (did you mean 'paper'?)"),
        ({"settings": {"steps": "many"}}, "schedule.steps='many' must be a whole number"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest_that_does(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError) as refused:
        _chosen(**arguments)
    assert str(refused.value).startswith(reason)
