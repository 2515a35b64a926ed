"""Settings that cannot work are refused, in one line that says which and why."""

import math
from typing import Any

import pytest

from apportion.backbones import BACKBONES
from apportion.core.config import UserError
from apportion.methods import METHODS
from apportion.training.settings import Schedule

CONFIGS = {name: entry.config for name, entry in (METHODS | BACKBONES).items()} | {"schedule": Schedule}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("align-rudder", {"best": 1}, "method.best=1 must be at least 2: one sequence cannot be aligned"),
    ("align-rudder", {"symbols": 1}, "method.symbols=1 must be at least 2"),
    ("align-rudder", {"columns": 0}, "method.columns=0 must be at least 1"),
    ("diaster", {"segments": 0}, "method.segments=0 must be at least 1"),
    ("diaster", {"update_every": 0}, "method.update_every=0 must be at least 1"),
    ("diaster", {"cells": 0}, "method.cells=0 must be at least 1"),
    ("diaster", {"hidden": ()}, "method.hidden needs at least one layer"),
    ("diaster", {"learning_rate": 0.0}, "method.learning_rate=0.0 must be positive"),
    ("gp-lrr", {"length_scale": 0.0}, "method.length_scale=0.0 must be positive"),
    (
        "grd",
        {"sparsity": (0.0, 0.0, -1.0, 0.0, 0.0)},
        "must be five numbers, none negative",
    ),
    ("grd", {"hidden": (8, 0)}, "method.hidden=(8, 0) must be at least 1 each"),
    ("grd", {"temperature": 0.0}, "method.temperature=0.0 must be positive"),
    ("grd", {"components": 0}, "method.components=0 must be at least 1"),
    ("grd", {"log_std_range": (1.0, 1.0)}, "method.log_std_range must rise"),
    ("hopfield-rudder", {"stored": 0}, "method.stored=0 must be at least 1"),
    ("hopfield-rudder", {"width": 1}, "method.width=1 must be at least 2"),
    ("hopfield-rudder", {"prefix_weight": -0.5}, "method.prefix_weight=-0.5 must not be negative"),
    ("ircr", {"best": 0}, "method.best=0 must be at least 1"),
    ("ircr", {"best_share": 1.0}, "method.best_share=1.0 must be in [0, 1)"),
    ("ircr", {"best_share": -0.1}, "method.best_share=-0.1 must be in [0, 1)"),
    ("rbt", {"layers": 0}, "method.layers=0 must be at least 1"),
    ("rbt", {"width": 10, "heads": 3}, "method.width=10 is no multiple of method.heads=3: change either"),
    ("rbt", {"state_weight": -1.0}, "method.state_weight=-1.0 must not be negative"),
    ("rrd", {"steps_per_segment": 0}, "method.steps_per_segment=0 must be at least 1"),
    ("rrd", {"steps_per_segment": 1, "unbiased": True}, "method.steps_per_segment=1 must be at least 2"),
    ("rudder", {"segments": 0}, "method.segments=0 must be at least 1"),
    ("rudder", {"lessons": 0}, "method.lessons=0 must be at least 1"),
    ("rudder", {"lessons_per_update": -1}, "method.lessons_per_update=-1 must not be negative"),
    ("rudder", {"update_every": 0}, "method.update_every=0 must be at least 1"),
    ("rudder", {"cells": 0}, "method.cells=0 must be at least 1"),
    ("rudder", {"prefix_weight": -0.5}, "method.prefix_weight=-0.5 must not be negative"),
    ("rudder", {"learning_rate": 0.0}, "method.learning_rate=0.0 must be positive"),
    ("transformer", {"heads": 0}, "method.heads=0 must be at least 1"),
    ("transformer", {"variance_penalty": -1.0}, "method.variance_penalty=-1.0 must not be negative"),
    ("transformer", {"variance_penalty": math.nan}, "method.variance_penalty=nan must not be negative"),
    ("crossq", {"critic_hidden": ()}, "backbone.critic_hidden needs at least one layer"),
    ("crossq", {"critic_hidden": (8, 0)}, "backbone.critic_hidden=(8, 0) must be at least 1 each"),
    ("crossq", {"batch_size": 1}, "backbone.batch_size=1 must be at least 2 for crossq"),
    ("crossq", {"actor_every": 0}, "backbone.actor_every=0 must be at least 1"),
    ("crossq", {"momentum": 1.0}, "backbone.momentum=1.0 must be in [0, 1)"),
    ("crossq", {"statistics_rate": 0.0}, "backbone.statistics_rate=0.0 must be in (0, 1]"),
    ("crossq", {"renorm_after": -1}, "backbone.renorm_after=-1 must not be negative"),
    ("dqn", {"hidden": ()}, "backbone.hidden needs at least one layer"),
    ("dqn", {"polyak": 0.0}, "backbone.polyak=0.0 must be in (0, 1]"),
    ("dqn", {"initial_epsilon": 1.5}, "backbone.initial_epsilon=1.5 must be in [0, 1]"),
    ("dqn", {"final_epsilon": -0.1}, "backbone.final_epsilon=-0.1 must be in [0, 1]"),
    ("dqn", {"exploration_updates": 0}, "backbone.exploration_updates=0 must be at least 1"),
    (
        "flashsac",
        {"critic_hidden": (8, 4)},
        "backbone.critic_hidden=(8, 4) must be the same width",
    ),
    ("flashsac", {"batch_size": 1}, "backbone.batch_size=1 must be at least 2 for flashsac"),
    ("flashsac", {"decay_updates": 0}, "backbone.decay_updates=0 must be at least 1"),
    ("ppo", {"epochs": 0}, "backbone.epochs=0 must be at least 1"),
    ("ppo", {"trace": 1.1}, "backbone.trace=1.1 must be in [0, 1]"),
    ("ppo", {"clip": 0.0}, "backbone.clip=0.0 must be positive"),
    ("ppo", {"largest_gradient": 0.0}, "backbone.largest_gradient=0.0 must be positive"),
    ("ppo", {"entropy_weight": -1.0}, "backbone.entropy_weight=-1.0 must not be negative"),
    ("sac", {"hidden": (8, 0)}, "backbone.hidden=(8, 0) must be at least 1 each"),
    ("sac", {"learning_rate": -1.0}, "backbone.learning_rate=-1.0 must be positive"),
    ("sac", {"critic_learning_rate": 0.0}, "backbone.critic_learning_rate=0.0 must be positive"),
    ("sac", {"batch_size": 0}, "backbone.batch_size=0 must be at least 1"),
    ("sac", {"discount": 1.0}, "backbone.discount=1.0 must be in [0, 1)"),
    ("sac", {"initial_temperature": 0.0}, "backbone.initial_temperature must be positive"),
    ("simba", {"hidden": (8, 4)}, "backbone.hidden=(8, 4) must be the same width for every block"),
    (
        "simba",
        {"critic_hidden": (8, 4)},
        "backbone.critic_hidden=(8, 4) must be the same width",
    ),
    ("simba", {"critic_hidden": (0,)}, "backbone.critic_hidden=(0,) must be at least 1 each"),
    ("simba", {"weight_decay": -0.1}, "backbone.weight_decay=-0.1 must not be negative"),
    ("ddpg", {"exploration_noise": -0.1}, "backbone.exploration_noise=-0.1 must not be negative"),
    ("td3", {"smoothing_noise": -0.1}, "backbone.smoothing_noise=-0.1 must not be negative"),
    ("td3", {"smoothing_clip": -0.1}, "backbone.smoothing_clip=-0.1 must not be negative"),
    ("schedule", {"steps": 0}, "steps=0 must be at least 1"),
    ("schedule", {"warmup_steps": -1}, "warmup_steps=-1 must not be negative"),
    ("schedule", {"workers": -1}, "workers=-1 must not be negative"),
]


@pytest.mark.parametrize(("name", "change", "complaint"), REFUSED)
def test_settings_that_cannot_work_are_refused(name: str, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        CONFIGS[name](**change)
    assert complaint in str(refused.value)
