"""Strict tests: no silent promotion of ranks or dtypes, and shapes in annotations are checked."""

import os
from typing import Any

import jax
import optax
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The tests compile much and compute little: without these XLA takes four times as long over each program.
# (An unknown flag is fatal to XLA, hence the version.)
jax.config.update("jax_disable_most_optimizations", True)
if jax.__version__.startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# Wherever arrays meet mathematics. The hook must come before the first import of each module.
_CHECKED = (
    *("masks", "losses", "networks", "optimise", "actor_critic", "attention"),
    *("memory", "recurrent"),
    *("methods", "backbones"),
    *("agent", "replay", "evaluate"),
)
install_import_hook([f"apportion.{module}" for module in _CHECKED], "beartype.beartype")

settings.register_profile("apportion", deadline=None)  # the first example of a test pays for compilation
settings.load_profile("apportion")

from apportion import optimise  # noqa: E402 - after the hook

_adam = optimise._ADAM


def _adam_update(*arguments: Any) -> Any:
    """optax raises a float to an integer count, which strict promotion forbids: let that one place be."""
    with jax.numpy_dtype_promotion("standard"):
        return _adam.update(*arguments)


optimise._ADAM = optax.GradientTransformation(_adam.init, _adam_update)
