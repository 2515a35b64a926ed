"""Does a user's own method or backbone keep its contract? Asked before a training begins, on shapes alone.

Nothing is computed: JAX traces each function once. Those that come with the package have their own tests.
"""

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from apportion.core.config import UserError, check
from apportion.core.registry import own
from apportion.core.spec import Spec, block_shapes
from apportion.core.types import Acted, Backbone, Batch, Method, Metrics, Sampling, State
from apportion.data import replay as replays
from apportion.envs import acting
from apportion.training.settings import Config


def check_own(config: Config, spec: Spec) -> None:
    """Complain, in one line, of a method or backbone of the user's that breaks its contract."""
    batch_size = config.make_backbone().batch_size
    if own(config.method):
        check_method(config.method, config.make_method(), spec, batch_size)
    if own(config.backbone):
        _check_backbone(config.backbone, config.make_backbone(), spec)


def check_method(name: str, method: Method, spec: Spec, batch_size: int) -> None:
    """Complain of what a method gives, unless it is what the loop, the reports and checkpoints need."""
    whose = f"--method {name}"
    check(isinstance(method.sampling, Sampling), f"{whose}: sampling must be a Sampling")
    wanted = method.sampling.suited(spec.max_segment_steps)

    def all_it_does(key: PRNGKeyArray) -> dict[str, Any]:
        batch = _batch(wanted, spec, batch_size, key)
        state = method.init(key, spec)
        found = _learned(state, method.update(state, batch, key))
        found["reward"] = method.reward(state, batch.transitions)
        if method.policy_mask is not None:
            found["policy_mask"] = method.policy_mask(state)
        if method.graph is not None:
            found |= {f"edges.{block}": each for block, each in method.graph.edges(state)._asdict().items()}
        if method.credit is not None and batch.segments is not None:
            found["credit"] = method.credit(state, batch.segments)
        if method.rescale is not None:
            found["rescaled"] = method.rescale(state, jnp.ones(()), jnp.zeros(()))
        return found

    found = _shapes(whose, all_it_does)
    _check_state(whose, found)
    _check_form(f"{whose}: rescale", found["state"], found.get("rescaled", found["state"]))
    states, actions = spec.observation_size, spec.action_size
    shapes = {
        "reward": (batch_size,),
        "policy_mask": (states,),
        "credit": (wanted.segments, spec.max_segment_steps),
        **{f"edges.{block}": shape for block, shape in block_shapes(states, actions).items()},
    }
    for what, shape in shapes.items():
        if what in found:
            _check_shape(f"{whose}: {what}", found[what], shape)


def _check_backbone(name: str, backbone: Backbone, spec: Spec) -> None:
    whose = f"--backbone {name}"
    check(backbone.batch_size >= 1, f"{whose}: batch_size={backbone.batch_size} must be at least 1")

    def all_it_does(key: PRNGKeyArray) -> dict[str, Any]:
        steps = _batch(Sampling(), spec, backbone.batch_size, key).transitions
        state = backbone.init(key, spec)
        if backbone.log_density is not None:
            density = backbone.log_density(state, steps.observation, steps.action)
            steps = steps._replace(acted=Acted(density, steps.terminated, steps.terminated))
        found = _learned(state, backbone.update(state, steps, steps.paid, key))
        action = backbone.act(state, steps.observation[0], key, True)
        return found | {"actor": backbone.actor(state), "action": action}

    found = _shapes(whose, all_it_does)
    _check_state(whose, found)
    _check_shape(f"{whose}: act", found["action"], (spec.action_size,))
    actor = {layer: np.zeros(array.shape, np.float32) for layer, array in found["actor"].items()}
    states = np.zeros(spec.observation_size, np.float32)
    acting.find_head(backbone.head)
    with _blaming(f"{whose}: acting in NumPy"):
        action = acting.act({**actor, "mask": states}, backbone.head, states, None)
    _check_shape(f"{whose}: its head {backbone.head}", action, (spec.action_size,))


def _batch(sampling: Sampling, spec: Spec, batch_size: int, key: PRNGKeyArray) -> Batch:
    """What an update sees, drawn from an empty replay."""
    replay = replays.init(spec, 16)  # any number of rows serves to find shapes
    drawn = replays.draw(replay, key, sampling, batch_size, sampling.every)
    return replays.gather(replay, jax.tree.map(lambda x: x[0], drawn), spec.max_segment_steps)


def _learned(before: State, updated: tuple[State, Metrics]) -> dict[str, Any]:
    return {"state": before, "after": updated[0], "metrics": updated[1]}


def _shapes(whose: str, function: Any) -> dict[str, Any]:
    key = jax.eval_shape(lambda: jax.random.key(0))
    with _blaming(whose):
        return jax.eval_shape(function, key)


def _check_state(whose: str, found: dict[str, Any]) -> None:
    """The state keeps its form in an update, and metrics are single numbers."""
    _check_form(f"{whose}: update", found["state"], found["after"])
    for metric, value in found["metrics"].items():
        _check_shape(f"{whose}: the metric {metric!r}", value, ())


def _check_form(what: str, before: Any, after: Any) -> None:
    same = bool(jax.tree.structure(before) == jax.tree.structure(after))  # type: ignore[operator]
    check(same, f"{what} gives a state of another structure than init")
    pairs = zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        forms = [f"{each.dtype.name}{list(each.shape)}" for each in (old, new)]
        where = jax.tree_util.keystr(path, simple=True, separator=".")
        check(forms[0] == forms[1], f"{what} makes {forms[1]} of the state's {where}, {forms[0]}")


def _check_shape(what: str, found: Any, wanted: tuple[int, ...]) -> None:
    check(found.shape == wanted, f"{what} has shape {found.shape}: {wanted} is needed")


@contextlib.contextmanager
def _blaming(whose: str) -> Iterator[None]:
    """A bug in a user's own code becomes one line; its author gets the place too."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{whose} raised {reason}") from error
