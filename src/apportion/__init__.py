"""apportion: who earned the reward?

Learn dense, interpretable rewards from delayed ones, and policies from them. What stands in `__all__` is the
public face: `train`, `fit` and `load` give a `Run`, `sweep` trains many of them from one file, `compare` sets
runs beside each other, `identify` finds the causal graph in logged episodes, and `relabel` writes them again
with the reward of each step.
Importing the package registers its environments with Gymnasium and stays light: no JAX until it is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

from apportion.envs import register

if TYPE_CHECKING:
    from apportion.core.config import UserError as UserError
    from apportion.core.spec import Graph as Graph
    from apportion.front.logs import fit as fit
    from apportion.front.logs import relabel as relabel
    from apportion.front.run import Run as Run
    from apportion.front.run import Stopped as Stopped
    from apportion.front.run import compare as compare
    from apportion.front.run import load as load
    from apportion.front.run import train as train
    from apportion.front.sweep.carrying import sweep as sweep
    from apportion.front.wrapper import RewardModelWrapper as RewardModelWrapper
    from apportion.graph import identify as identify
    from apportion.report.comparison import Compared as Compared

__version__ = "0.2.0"

__all__ = [
    "Compared",
    "Graph",
    "RewardModelWrapper",
    "Run",
    "Stopped",
    "UserError",
    "__version__",
    "compare",
    "fit",
    "identify",
    "load",
    "relabel",
    "sweep",
    "train",
]

_HOMES = {
    "Compared": "report.comparison",
    "Graph": "core.spec",
    "RewardModelWrapper": "front.wrapper",
    "Run": "front.run",
    "Stopped": "front.run",
    "UserError": "core.config",
    "compare": "front.run",
    "fit": "front.logs",
    "identify": "graph",
    "load": "front.run",
    "relabel": "front.logs",
    "sweep": "front.sweep.carrying",
    "train": "front.run",
}

# `apportion.sb3` and its like are modules of their own, and live where the layers have them.
__path__ = [*__path__, f"{__path__[0]}/front/beside"]

if not TYPE_CHECKING:  # or a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Fetch a public name from where it lives, when it is first asked for."""
        if name == "sb3":  # a module, and only for those who have Stable-Baselines3
            return importlib.import_module("apportion.sb3")
        if name not in _HOMES:
            raise AttributeError(f"module 'apportion' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"apportion.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register()
