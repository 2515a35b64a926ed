"""Strict tests: silent promotion of ranks or dtypes is an error, and shapes written in annotations are checked."""

from typing import Any

import jax
import optax
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Layers 1 to 4, wherever arrays meet mathematics. The hook must come before the first import of each module.
install_import_hook(
    [
        "apportion.masks",
        "apportion.losses",
        "apportion.networks",
        "apportion.optimise",
        "apportion.methods",
        "apportion.backbones",
        "apportion.agent",
        "apportion.replay",
        "apportion.evaluate",
    ],
    "beartype.beartype",
)

settings.register_profile("apportion", deadline=None)  # the first example of a test pays for compilation
settings.load_profile("apportion")

from apportion import optimise  # noqa: E402 - after the hook

_strict_adam = optimise._ADAM


def _adam_update(*arguments: Any) -> Any:
    """optax raises a float to an integer count, which strict promotion forbids: let that one place be."""
    with jax.numpy_dtype_promotion("standard"):
        return _strict_adam.update(*arguments)


optimise._ADAM = optax.GradientTransformation(_strict_adam.init, _adam_update)
