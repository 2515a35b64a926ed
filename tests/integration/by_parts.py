"""The loop of training step by step, around parts that are compiled once, not once for each pair of them."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from apportion import backbones, methods
from apportion.core.types import Backbone, Method, Metrics
from apportion.data import replay as replays
from apportion.nn import lanes
from apportion.training import devices, loop, revisions, updates
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.settings import Config

_OF_METHODS = ("update", "reward", "policy_mask", "credit")
_OF_BACKBONES = ("update", "actor", "log_density")
_OF_REPLAYS: dict[str, Callable[..., Any]] = {
    "insert": jax.jit(replays.insert),
    "draw": jax.jit(replays.draw, static_argnums=(2, 3, 4)),
    "gather": jax.jit(replays.gather, static_argnums=2),
    "gather_segments": jax.jit(replays.gather_segments, static_argnums=2),
}
_OF_SCALES: dict[str, Callable[..., Any]] = {
    name: jax.jit(getattr(scales, name)) for name in ("measured", "transitions", "batch", "watched")
}
_chosen = jax.jit(lanes.choose)
_compile_revisions = revisions._compile  # as it is before compiled_once: what it remembers are whole programs


@pytest.fixture
def by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings have the parts of a method, of a backbone, of the replay and of its units as programs, and
    nothing larger."""
    monkeypatch.setattr(Config, "make_method", lambda self: _method(self.method, self.method_config))
    monkeypatch.setattr(Config, "make_backbone", lambda self: _backbone(self.backbone, self.backbone_config))
    monkeypatch.setattr(devices, "compiled", lambda function, lanes, donate=(): jax.vmap(function))
    monkeypatch.setattr(updates, "repeat", _repeat)
    make_init = loop._compile_init
    monkeypatch.setattr(loop, "_compile_init", lambda *about: make_init(*about).__wrapped__)
    monkeypatch.setattr(revisions, "_compile", _compile_revisions)
    for module in (updates, revisions):
        monkeypatch.setattr(module, "choose", _choose)
    for module, parts in ((replays, _OF_REPLAYS), (scales, _OF_SCALES)):
        for name, compiled in parts.items():
            monkeypatch.setattr(module, name, compiled)


@cache
def _method(name: str, config: Any) -> Method:
    method = methods.find(name).make(config)
    memory, graph = method.memory, method.graph
    if memory is not None and memory.recall is not None:
        memory = memory._replace(recall=jax.jit(memory.recall, static_argnums=1))
    if graph is not None:
        graph = graph._replace(**{name: jax.jit(view) for name, view in graph._asdict().items() if view})
    return _with_compiled(method, _OF_METHODS)._replace(memory=memory, graph=graph)


@cache
def _backbone(name: str, config: Any) -> Backbone:
    return _with_compiled(backbones.find(name).make(config), _OF_BACKBONES)


def _with_compiled(part: Any, names: tuple[str, ...]) -> Any:
    there = [name for name in names if getattr(part, name) is not None]
    compiled = {name: jax.jit(getattr(part, name)) for name in there}
    return part._replace(init=jax.jit(part.init, static_argnums=1), **compiled)


def _repeat(
    update: Callable[[Any, Any], tuple[Any, Metrics]], state: Any, inputs: Any
) -> tuple[Any, Metrics]:
    """What updates.repeat does, as a loop."""
    found = []
    for turn in range(len(jax.tree.leaves(inputs)[0])):
        state, metrics = update(state, jax.tree.map(lambda x, turn=turn: x[turn], inputs))
        found.append(metrics)
    return state, {name: jnp.mean(jnp.stack([metrics[name] for metrics in found])) for name in found[0]}


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    """What lanes.choose does, for what is the method's and what is the backbone's each by itself."""
    if isinstance(yes, AgentState):
        return AgentState(*map(partial(_choose, condition), yes, no))
    return _chosen(condition, yes, no)
