"""The conformance suite: what every registered method and backbone promises. New entries are covered too."""

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import BACKBONES
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Batch, Method
from apportion.envs import acting
from apportion.methods import METHODS
from apportion.nn import optimise
from apportion.training import agent
from builders import BUTTONS, SPEC, assert_close, assert_equal, batch, lane, stack, transitions

SIZE = 6
# Where a config has such a setting. Some of the segments have fewer steps than this, some more.
SMALL = {
    "hidden": (8,),
    "critic_hidden": (8,),
    "width": 8,
    "layers": 1,
    "cells": 8,
    "batch_size": SIZE,
    "learning_rate": 3e-3,
    "steps_per_segment": 3,
}

# Those whose update draws nothing at random; rudder not before it has lessons to draw from. All others must
# differ from key to key.
KEYLESS = {
    "bc",
    "dqn",
    "iql",
    "observed",
    "oracle",
    "rd",
    "ddpg",
    "grd",
    "ircr",
    "rudder",
    "transformer",
    "rbt",
    "gp-lrr",
    "align-rudder",
}

# The same contract under other settings, where these choose another way to learn.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"grd-by-gradient": ("grd", {"structure": "gradient"})}


def small(config: type[Any]) -> Any:
    fields = {field.name for field in dataclasses.fields(config)}
    return config(**{name: value for name, value in SMALL.items() if name in fields})


class Subject(NamedTuple):
    """One entry under test, with its update as a function of state, data and key."""

    name: str
    contract: Any  # Method or Backbone
    init: Any  # key → state
    update: Any  # (state, batch, key) → (state, metrics)
    jitted: Any  # the same, compiled
    data: Batch
    spec: Spec

    @property
    def state(self) -> Any:
        return self.init(jax.random.key(0))


@cache
def _method(name: str) -> Subject:
    registered, changes = VARIANTS.get(name, (name, {}))
    entry = METHODS[registered]
    method: Method = entry.make(dataclasses.replace(small(entry.config), **changes))
    init = jax.jit(lambda key: method.init(key, SPEC))
    data = batch(1, SIZE, method.sampling.segments)
    return Subject(name, method, init, method.update, jax.jit(method.update), data, SPEC)


@cache
def _backbone(name: str) -> Subject:
    backbone: Backbone = BACKBONES[name].make(small(BACKBONES[name].config))

    def update(state: Any, data: Batch, key: jax.Array) -> Any:
        rewards = data.transitions.segment_total  # any numbers but those that it must not read for itself
        return backbone.update(state, data.transitions, rewards, key)

    spec = BUTTONS if backbone.discrete else SPEC
    init = jax.jit(lambda key: backbone.init(key, spec))
    return Subject(name, backbone, init, update, jax.jit(update), batch(1, SIZE, 0, spec), spec)


MAKERS = {"method": (_method, [*METHODS, *VARIANTS]), "backbone": (_backbone, BACKBONES)}
ALL = [(kind, name) for kind, (_, registry) in MAKERS.items() for name in registry]


@pytest.fixture(params=ALL, ids=lambda pair: "-".join(pair))
def subject(request: pytest.FixtureRequest) -> Subject:
    kind, name = request.param
    return MAKERS[kind][0](name)


@pytest.fixture(params=[*METHODS, *VARIANTS])
def method(request: pytest.FixtureRequest) -> Subject:
    return _method(request.param)


@pytest.fixture(params=BACKBONES)
def backbone(request: pytest.FixtureRequest) -> Subject:
    return _backbone(request.param)


# --- Both kinds


def test_state_is_arrays_and_keeps_its_form_so_that_one_trace_serves_all_updates(subject: Subject) -> None:
    """Structure, shapes, dtypes and weak types: if one of them changed, the next call would compile anew."""
    leaves = jax.tree.leaves(subject.state)
    assert leaves
    assert all(isinstance(leaf, jax.Array) and not leaf.weak_type for leaf in leaves)
    after, metrics = subject.jitted(subject.state, subject.data, jax.random.key(1))
    traces = subject.jitted._cache_size()
    subject.jitted(after, subject.data, jax.random.key(2))
    assert subject.jitted._cache_size() == traces
    assert jax.tree.structure(after) == jax.tree.structure(subject.state)
    for old, new in zip(leaves, jax.tree.leaves(after), strict=True):
        assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert all(value.shape == () and np.isfinite(value) for value in metrics.values())


@pytest.mark.slow
def test_compiled_equals_eager(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    # Adam alone stays compiled: a dozen operations for every array, each compiled by itself, take too long.
    monkeypatch.setattr(optimise, "step", jax.jit(optimise.step, static_argnames="momentum"))
    arguments = (subject.state, subject.data, jax.random.key(1))
    assert_close(subject.jitted(*arguments), subject.update(*arguments))


def test_lanes_together_equal_one_by_one(subject: Subject) -> None:
    keys = jax.random.split(jax.random.key(3), 2)
    states = [subject.init(key) for key in keys]
    segments = 0 if subject.data.segments is None else len(subject.data.segments.total)
    other = batch(7, SIZE, segments, subject.spec)
    data = [subject.data, other]
    together = jax.device_get(jax.jit(jax.vmap(subject.update))(stack(*states), stack(*data), keys))
    for index in range(2):
        alone = subject.jitted(states[index], data[index], keys[index])
        assert_close(lane(together, index), alone)


def test_the_key_decides(subject: Subject) -> None:
    first, again, other = (
        subject.jitted(subject.state, subject.data, jax.random.key(seed))[0] for seed in (1, 1, 2)
    )
    assert_equal(first, again)
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True)
    differs = any(not np.array_equal(x, y) for x, y in pairs)
    assert differs == (subject.name not in KEYLESS)


def test_loss_falls_on_a_fixed_batch(subject: Subject) -> None:
    """Any method that reports losses, and every backbone's critic."""

    wanted = {"bc": "actor_loss"}.get(subject.name, "critic_loss") if subject.name in BACKBONES else "_loss"
    state, losses = subject.state, []
    for key in jax.random.split(jax.random.key(4), 300):
        state, metrics = subject.jitted(state, subject.data, key)
        losses.append([value for name, value in metrics.items() if name.endswith(wanted)])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, losses)))
    if losses[0]:  # else there is nothing to learn by descent
        loss = np.sum(np.array(losses, np.float64), axis=1)
        assert np.mean(loss[-20:]) < 0.8 * np.mean(loss[:20])


# --- Methods


def test_a_method_rewards_every_step(method: Subject) -> None:
    for shape in ((SIZE,), (2, 3)):  # whole evaluation episodes come with more axes
        steps = jax.tree.map(lambda x, shape=shape: x.reshape(*shape, *x.shape[1:]), transitions(2, SIZE))
        rewards = method.contract.reward(method.state, steps)
        assert rewards.shape == shape
        assert rewards.dtype == jnp.float32
        assert np.isfinite(rewards).all()


def test_a_method_may_have_a_graph_and_hide_something_from_the_policy(method: Subject) -> None:
    states, actions = SPEC.observation_size, SPEC.action_size
    if method.contract.policy_mask is not None:
        mask = method.contract.policy_mask(method.state)
        assert (mask.shape, mask.dtype) == ((states,), jnp.float32)
        assert set(np.unique(mask)) <= {0.0, 1.0}
        assert mask.any()  # or the policy would be blind from the start
    if method.contract.graph is not None:
        edges = method.contract.graph.edges(method.state)
        assert [e.shape for e in edges] == [(states,), (actions,), (states, states), (actions, states)]
        assert all(((block >= 0) & (block <= 1)).all() for block in edges)


def test_only_the_oracle_reads_the_hidden_reward(method: Subject) -> None:
    steps = method.data.transitions
    hidden = method.data._replace(
        transitions=steps._replace(true_reward=jnp.full_like(steps.true_reward, jnp.nan))
    )
    if hidden.segments is not None:
        noise = jnp.full_like(hidden.segments.true_rewards, jnp.nan)
        hidden = hidden._replace(segments=hidden.segments._replace(true_rewards=noise))
    key = jax.random.key(1)
    assert_equal(method.jitted(method.state, hidden, key), method.jitted(method.state, method.data, key))
    reads = np.isnan(method.contract.reward(method.state, hidden.transitions)).any()
    assert reads == (method.name == "oracle")


# --- Backbones


def _actor(backbone: Subject, mask: Any) -> dict[str, np.ndarray]:
    """As the trainer sends it to the workers."""
    method = _method("observed").contract._replace(policy_mask=lambda state: state)
    state = agent.AgentState(jnp.asarray(mask, jnp.float32), backbone.state, None)
    arrays = agent.actor(method, backbone.contract, state, len(mask))
    return {name: np.asarray(array) for name, array in arrays.items()}


def test_numpy_acts_as_the_backbone_does(backbone: Subject) -> None:
    """One-hot where it is discrete, exploring or not; else nearly never."""
    mask, rng = np.array([1.0, 0.0, 1.0], np.float32), np.random.default_rng(1)
    actor, key = _actor(backbone, mask), jax.random.key(0)
    act = jax.jit(lambda observation: backbone.contract.act(backbone.state, observation, key, False))
    for observation in np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32):
        found, explored, unseen = (
            acting.act(actor, backbone.contract.head, observation + far, source)
            for far, source in ((0, None), (0, rng), (np.array([0.0, 100.0, 0.0], np.float32), None))
        )
        np.testing.assert_allclose(found, act(observation * mask), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(unseen, found)
        assert found.dtype == np.float32
        assert (np.abs(found) <= 1).all()
        for action in (found, explored):
            assert (sorted(action.tolist()) == [0.0, 1.0]) == backbone.spec.discrete


def test_a_policy_that_diverged_stands_still(backbone: Subject) -> None:
    actor = {name: np.full_like(array, np.nan) for name, array in _actor(backbone, np.ones(3)).items()}
    for rng in (None, np.random.default_rng(0)):
        found = acting.act(actor, backbone.contract.head, np.ones(3, np.float32), rng)
        np.testing.assert_array_equal(found, np.zeros(2))


def test_numpy_explores_as_the_backbone_does(backbone: Subject) -> None:
    """The same distribution of actions, from another source of randomness."""
    actor, observation = _actor(backbone, np.ones(3)), np.array([0.5, -1.0, 2.0], np.float32)
    rng, count = np.random.default_rng(0), 4000
    worker = np.stack([acting.act(actor, backbone.contract.head, observation, rng) for _ in range(count)])
    keys = jax.random.split(jax.random.key(0), count)

    def explore(key: jax.Array) -> jax.Array:
        return backbone.contract.act(backbone.state, jnp.asarray(observation), key, True)

    learner = np.asarray(jax.jit(jax.vmap(explore))(keys))
    assert worker.dtype == np.float32
    assert (np.abs(worker) <= 1).all()
    np.testing.assert_allclose(worker.mean(axis=0), learner.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(worker.std(axis=0), learner.std(axis=0), atol=0.04)
    np.testing.assert_allclose(
        np.quantile(worker, [0.1, 0.5, 0.9]), np.quantile(learner, [0.1, 0.5, 0.9]), atol=0.06
    )


def test_a_backbone_follows_the_rewards_it_is_given_only(backbone: Subject) -> None:
    """Not the paid or the hidden reward in the transitions."""
    nothing = jnp.full_like(backbone.data.transitions.paid, jnp.nan)
    other = Batch(None, backbone.data.transitions._replace(paid=nothing, true_reward=nothing))
    key = jax.random.key(1)
    found, expected = (backbone.jitted(backbone.state, data, key) for data in (other, backbone.data))
    assert_equal(found, expected)
