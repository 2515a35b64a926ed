"""Who earned the learned reward of a step: contributions of its dimensions that add up to it."""

from apportion.runs.explain.rewards import (
    Explanation,
    Precision,
    RewardOf,
    Steps,
    check_explainable,
    compile_reward,
    explain_reward,
    why_not_alone,
)

__all__ = [
    "Explanation",
    "Precision",
    "RewardOf",
    "Steps",
    "check_explainable",
    "compile_reward",
    "explain_reward",
    "why_not_alone",
]
