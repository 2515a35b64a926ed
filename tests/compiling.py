"""One store of compiled programs, for the tests that train, and one dictionary for all that are written."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from jax._src.interpreters import mlir  # the only place to which a program's dictionary can be given
from jax.experimental.compilation_cache import compilation_cache

from apportion import backbones, methods
from apportion.core.spec import Spec
from apportion.training import evaluate, loop, revisions
from apportion.training.settings import Config

_dictionaries = threading.local()  # a context may grow in one thread only


def share_dictionaries() -> None:
    """JAX writes every program, however small, with a new MLIR context: to load its dialects takes a fifth of
    what such a program takes until it runs. Those of one thread may as well have one, until it is renewed."""
    make = mlir.make_ir_context

    def shared() -> Any:
        if not hasattr(_dictionaries, "context"):
            _dictionaries.context = make()
        return _dictionaries.context

    mlir.make_ir_context = shared


def renew_dictionary() -> None:
    """A context keeps every name and constant that it has met: let go of them."""
    vars(_dictionaries).clear()


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """JAX's cache in a folder of the session's, for this process, its neighbours and its children."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    settings = {
        "jax_compilation_cache_dir": str(folder / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        # Children compile as this process does, or their numbers would differ in the last digit.
        quickly = jax.config.values["jax_disable_most_optimizations"]
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(quickly)))
        compilation_cache.reset_cache()
        patch.setattr(loop, "_compile", _remembering(loop._compile, _of_training))
        patch.setattr(loop, "_compile_init", _remembering(loop._compile_init, _of_training))
        patch.setattr(evaluate, "_compile", _remembering(evaluate._compile, _of_evaluation))
        patch.setattr(revisions, "_compile", _remembering(revisions._compile, _of_evaluation))
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


# What no program knows of an environment: its workers alone speak its own language.
_FOREIGN = {"env_id": None, "action_low": None, "action_high": None}


def _of_training(config: Config) -> tuple[tuple[Any, ...], Any]:
    schedule, (entries, settings) = config.schedule, _of_evaluation(config)
    return (*entries, backbones.find(config.backbone)), (
        (settings, config.normalise, config.env.time_up),
        (config.backbone, config.backbone_config),
        (schedule.updates_per_iteration, schedule.steps_per_iteration, schedule.warmup_steps),
    )


def _of_evaluation(config: Config) -> tuple[tuple[Any, ...], Any]:
    """What a name stands for may change (pages and tests bring learners of their own), and its settings."""
    return (methods.find(config.method),), (config.method, config.method_config)


def _remembering(
    compile_: Callable[..., Any], decisive: Callable[[Config], tuple[tuple[Any, ...], Any]]
) -> Any:
    """Pure functions of the same settings are the same: JAX need not trace them again for every training."""
    known: dict[Any, Any] = {}

    def remembered(config: Config, *spec: Spec) -> Any:
        entries, settings = decisive(config)
        key = entries, repr((settings, [each.to_dict() | _FOREIGN for each in spec]))
        if key not in known:
            known[key] = compile_(config, *spec)
        return known[key]

    return remembered
