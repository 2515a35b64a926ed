"""Settings that cannot work are refused, in one line that says which and why."""

import math
from dataclasses import fields
from typing import Any

import pytest

from apportion.backbones import BACKBONES
from apportion.core.config import UserError
from apportion.methods import METHODS
from apportion.training.settings import Schedule

CONFIGS = {name: entry.config for name, entry in (METHODS | BACKBONES).items()}

COUNTS = "segments update_every components cells best lessons stored columns layers heads width symbols"
COUNTS += " steps_per_segment batch_size actor_every decay_updates exploration_updates epochs"
POSITIVE = "learning_rate critic_learning_rate temperature length_scale initial_temperature clip"
POSITIVE += " largest_gradient"
WEIGHTS = "edge_learning_rate prefix_weight variance_penalty state_weight weight_decay exploration_noise"
WEIGHTS += " smoothing_noise smoothing_clip value_weight entropy_weight actor_penalty critic_penalty"
# What no setting of a name may be, whoever has it, and what is said of that.
RULES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(COUNTS.split(), (0, "must be at least ")),
    **dict.fromkeys(POSITIVE.split(), (0.0, "must be positive")),
    **dict.fromkeys(WEIGHTS.split(), (-0.5, "must not be negative")),
    **dict.fromkeys(("lessons_per_update", "renorm_after"), (-1, "must not be negative")),
    **dict.fromkeys(("hidden", "critic_hidden"), ((8, 0), "must be at least 1 each")),
    **dict.fromkeys(("discount", "momentum", "best_share"), (1.0, "must be in [0, 1)")),
    **dict.fromkeys(("polyak", "statistics_rate"), (0.0, "must be in (0, 1]")),
    **dict.fromkeys(("initial_epsilon", "final_epsilon", "trace"), (1.1, "must be in [0, 1]")),
}
RULES_OF = {"iql": {"temperature": (-0.5, "must not be negative")}}  # 0 is cloning


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if fields(config)])
def test_every_setting_of_a_name_keeps_its_rule(name: str) -> None:
    rules = RULES | RULES_OF.get(name, {})
    checked = [field.name for field in fields(CONFIGS[name]) if field.name in rules]
    assert checked
    for setting in checked:
        value, complaint = rules[setting]
        with pytest.raises(UserError) as refused:
            CONFIGS[name](**{setting: value})
        assert f".{setting}" in str(refused.value)
        assert complaint in str(refused.value)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("align-rudder", {"best": 1}, "method.best=1 must be at least 2: one sequence cannot be aligned"),
    ("align-rudder", {"symbols": 1}, "method.symbols=1 must be at least 2"),
    ("diaster", {"hidden": ()}, "method.hidden needs at least one layer"),
    ("grd", {"sparsity": (0.0, 0.0, -1.0, 0.0, 0.0)}, "must be five numbers, none negative"),
    ("grd", {"log_std_range": (1.0, 1.0)}, "method.log_std_range must rise"),
    ("hopfield-rudder", {"width": 1}, "method.width=1 must be at least 2"),
    ("ircr", {"best_share": -0.1}, "method.best_share=-0.1 must be in [0, 1)"),
    ("rbt", {"width": 10, "heads": 3}, "method.width=10 is no multiple of method.heads=3: change either"),
    ("rrd", {"steps_per_segment": 1, "unbiased": True}, "method.steps_per_segment=1 must be at least 2"),
    ("transformer", {"variance_penalty": math.nan}, "method.variance_penalty=nan must not be negative"),
    ("crossq", {"critic_hidden": ()}, "backbone.critic_hidden needs at least one layer"),
    ("crossq", {"batch_size": 1}, "backbone.batch_size=1 must be at least 2 for crossq"),
    ("dqn", {"final_epsilon": -0.1}, "backbone.final_epsilon=-0.1 must be in [0, 1]"),
    ("flashsac", {"critic_hidden": (8, 4)}, "backbone.critic_hidden=(8, 4) must be the same width"),
    ("flashsac", {"batch_size": 1}, "backbone.batch_size=1 must be at least 2 for flashsac"),
    ("iql", {"expectile": 1.0}, "backbone.expectile=1.0 must be between 0 and 1"),
    ("simba", {"hidden": (8, 4)}, "backbone.hidden=(8, 4) must be the same width for every block"),
    ("schedule", {"steps": 0}, "steps=0 must be at least 1"),
    ("schedule", {"warmup_steps": -1}, "warmup_steps=-1 must not be negative"),
    ("schedule", {"workers": -1}, "workers=-1 must not be negative"),
    ("schedule", {"replay_steps": 10**20}, f"replay_steps={10**20} must be at most 1,000,000,000,000,000"),
]


@pytest.mark.parametrize(("name", "change", "complaint"), REFUSED)
def test_settings_that_cannot_work_are_refused(name: str, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        (CONFIGS | {"schedule": Schedule})[name](**change)
    assert complaint in str(refused.value)
