"""GRD as published: its loss equals the formula, and its gradient finds the edge that earns."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from apportion.core.spec import Spec
from apportion.core.types import Batch, Edges, Segments, Transitions
from apportion.methods import grd
from apportion.methods.grd import parts, published
from builders import SPEC, assert_close, batch, lane, numpy, segments, stack
from probes import plain_outputs

# Edges that are as good as undecided, a clamp that clamps, and sparsity that shows.
CONFIG = grd.Config(
    structure="gradient",
    hidden=(8, 8),
    sparsity=(0.1, 0.2, 0.3, 0.4, 0.5),
    log_std_range=(-1.0, 0.5),
    initial_edge_logit=0.5,
)


@pytest.fixture(scope="module")
def state() -> published.State:
    return jax.jit(lambda key: grd.make(CONFIG).init(key, SPEC))(jax.random.key(0))


_update = jax.jit(grd.make(CONFIG).update)


def _plain_reward_loss(model: published.Model, edges: Edges, segments: Segments) -> float:
    errors = []
    for m, length in enumerate(segments.length):
        predicted = 0.0
        for t in range(length):
            seen = [
                edges.state_to_reward * segments.observations[m, t],
                edges.action_to_reward * segments.actions[m, t],
            ]
            predicted += plain_outputs(model.reward, np.concatenate(seen))[0]
        errors.append(((predicted - segments.total[m]) / length) ** 2)
    return float(np.mean(errors))


def _plain_dynamics_loss(
    model: published.Model, edges: Edges, steps: Transitions, config: grd.Config
) -> float:
    network, terms = model.dynamics, []
    for b in range(len(steps.paid)):
        for i in range(SPEC.observation_size):
            seen = [
                edges.state_to_state[:, i] * steps.observation[b],
                edges.action_to_state[:, i] * steps.action[b],
            ]
            identity = network.identity[i] if config.target_identity else 0
            hidden = np.maximum(np.concatenate(seen) @ network.weight + network.bias + identity, 0)
            means, log_stds, logits = np.split(plain_outputs(network.body, hidden), 3)
            stds = np.exp(np.clip(log_stds, *config.log_std_range))
            densities = stats.norm.logpdf(steps.next_observation[b, i], means, stds)
            terms.append(special.logsumexp(special.log_softmax(logits) + densities))
    return -float(np.mean(terms))


@pytest.mark.parametrize("target_identity", [True, False])
def test_model_loss_equals_numpy(state: published.State, target_identity: bool) -> None:
    config = dataclasses.replace(CONFIG, target_identity=target_identity)
    data, key = batch(1, size=6, segment_count=4), jax.random.key(7)
    model_loss = jax.jit(published.model_loss, static_argnums=4)
    loss, metrics = model_loss(state.model, data, state.sparsity, key, config)

    # Independent draws for the reward batch and the dynamics batch.
    logits, keys = state.model.edges, jax.random.split(key)
    to_reward = published.sample_masks(
        keys[0], (logits.state_to_reward, logits.action_to_reward), config.temperature
    )
    to_state = published.sample_masks(
        keys[1], (logits.state_to_state, logits.action_to_state), config.temperature
    )
    edges = numpy(Edges(*to_reward, *to_state))
    model, plain = numpy(state.model), numpy(data)
    reward_loss = _plain_reward_loss(model, edges, plain.segments)
    dynamics_loss = _plain_dynamics_loss(model, edges, plain.transitions, config)
    blocks = [
        model.edges.state_to_reward,
        model.edges.action_to_reward,
        model.edges.state_to_state[~np.eye(3, dtype=bool)],
        np.diag(model.edges.state_to_state),
        model.edges.action_to_state,
    ]
    sparsity_loss = sum(
        w * special.log_expit(b).sum() for w, b in zip(numpy(state.sparsity), blocks, strict=True)
    )
    np.testing.assert_allclose(metrics["reward_loss"], reward_loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["dynamics_loss"], dynamics_loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["sparsity_loss"], sparsity_loss, rtol=1e-4)
    np.testing.assert_allclose(loss, reward_loss + dynamics_loss + sparsity_loss, rtol=1e-4)


def test_both_blocks_of_edges_are_sampled_as_often_as_their_logits_say() -> None:
    """One draw serves two blocks of different shapes; neither may end up with the other's logits."""
    blocks = jnp.asarray([-2.0, 0.0, 2.0]), jnp.asarray([[1.0, -1.0], [3.0, -3.0]])
    keys = jax.random.split(jax.random.key(0), 5000)
    samples = jax.jit(jax.vmap(lambda key: published.sample_masks(key, blocks, 1.0)))(keys)
    for sample, logits in zip(samples, blocks, strict=True):
        np.testing.assert_allclose(np.mean(sample, axis=0), special.expit(logits), atol=0.03)


# --- Which edge earns?

EARNING = Spec(
    env_id="only s0 earns",
    observation_names=("earns", "noise", "echo", "more noise"),
    action_names=("idle",),
    max_episode_steps=5,
    max_segment_steps=5,
)


def _segments_where_only_the_first_dimension_earns() -> Segments:
    found = segments(5, 64, EARNING)
    rewards = 2 * found.observations[:, :-1, 0]
    return found._replace(true_rewards=rewards, total=jnp.sum(jnp.where(found.mask, rewards, 0.0), axis=1))


def test_the_straight_through_gradient_raises_the_edge_that_earns() -> None:
    config = grd.Config(
        structure="gradient",
        hidden=(16,),
        learning_rate=5e-3,
        edge_learning_rate=1e-2,
        initial_edge_logit=1.0,
        sparsity=(0.02, 0.02, 0.0, 0.0, 0.0),
    )
    method = grd.make(config)
    data = Batch(_segments_where_only_the_first_dimension_earns(), batch(0, 4, 0, EARNING).transitions)

    @jax.jit
    def train(key: jax.Array, keys: jax.Array) -> tuple[published.State, jax.Array]:
        state = method.init(key, EARNING)
        state, _ = jax.lax.scan(lambda s, key: method.update(s, data, key), state, keys)
        undecided = state.model._replace(edges=jax.tree.map(jnp.zeros_like, state.model.edges))

        def gradient(key: jax.Array) -> jax.Array:
            slope = jax.grad(published.model_loss, has_aux=True)
            slopes, _ = slope(undecided, data, jnp.zeros(5), key, config)
            return slopes.edges.state_to_reward

        return state, jax.vmap(gradient)(keys[:200])

    state, gradients = train(jax.random.key(1), jax.random.split(jax.random.key(2), 400))
    mean, spread = np.mean(gradients, axis=0), np.std(gradients, axis=0) / np.sqrt(200)
    assert mean[0] + 5 * spread[0] < 0  # raising this edge lowers the loss ...
    assert (np.abs(mean[1:]) < 0.1 * np.abs(mean[0])).all()  # ... and the others hardly matter
    logits = np.asarray(state.model.edges.state_to_reward)
    assert logits[0] > config.initial_edge_logit + 0.5
    assert (logits[1:] < logits[0] - 1.0).all()
    truth, found = 2 * data.transitions.observation[:, 0], method.reward(state, data.transitions)
    np.testing.assert_allclose(found, truth, atol=0.5)  # and the sums were split into the right steps


# --- What the model says: rewards, the policy's mask, edges


def _with_edges(state: published.State, edges: Edges) -> published.State:
    """Logits of ±1: on and off, as sure as they start."""
    logits = Edges(*(2.0 * jnp.asarray(block, jnp.float32) - 1.0 for block in edges))
    return state._replace(model=state.model._replace(edges=logits))


@pytest.fixture
def chain(state: published.State) -> published.State:
    """colour → speed → height → r; push → r."""
    to_state = np.zeros((3, 3))
    to_state[1, 0] = to_state[2, 1] = 1
    edges = Edges(np.array([1, 0, 0]), np.array([1, 0]), to_state, np.zeros((2, 3)))
    return _with_edges(state, edges)


@pytest.mark.parametrize(
    ("compact", "paid", "ending", "neither"),
    [
        ("closure", [1, 1, 1], [0, 1, 1], [0, 0, 0]),
        ("one-hop", [1, 1, 0], [0, 1, 1], [0, 0, 0]),
        ("parents", [1, 0, 0], [0, 1, 0], [0, 0, 0]),
        ("none", [1, 1, 1], [1, 1, 1], [1, 1, 1]),  # the ablation
    ],
)
def test_the_policy_sees_what_is_paid_for_or_ends_episodes_and_what_leads_there(
    chain: published.State, compact: Any, paid: list[int], ending: list[int], neither: list[int]
) -> None:
    config = dataclasses.replace(CONFIG, compact=compact)
    np.testing.assert_array_equal(grd.make(config).policy_mask(chain), paid)
    unpaid = published.edges_on(chain)._replace(state_to_reward=jnp.zeros(3))
    np.testing.assert_array_equal(parts.compact(unpaid, jnp.asarray([0.0, 1.0, 0.0]), config), ending)
    np.testing.assert_array_equal(parts.compact(unpaid, jnp.zeros(3), config), neither)


def test_rewards_are_those_of_the_greedy_edges(chain: published.State) -> None:
    method, steps = grd.make(CONFIG), batch(2, 6, 0).transitions
    plain = numpy(steps)
    masked = np.concatenate([plain.observation * [1, 0, 0], plain.action * [1, 0]], axis=1)
    expected = plain_outputs(numpy(chain.model.reward), masked)[:, 0]
    np.testing.assert_allclose(method.reward(chain, steps), expected, rtol=1e-4, atol=1e-6)
    shifted = steps._replace(observation=steps.observation.at[:, 1:].add(5.0))
    np.testing.assert_array_equal(method.reward(chain, shifted), method.reward(chain, steps))


def test_sparsity_belongs_to_the_lane(state: published.State) -> None:
    """Two lanes that differ in λ only learn different edges, each as it would alone, and equal networks."""
    free = state._replace(sparsity=jnp.zeros(5))
    data, key = batch(3, 6, 4), jax.random.key(0)
    together, metrics = jax.jit(jax.vmap(_update, in_axes=(0, None, None)))(stack(state, free), data, key)
    assert_close(lane(together, 0), _update(state, data, key)[0])
    sparse, dense = lane(together, 0).model, lane(together, 1).model
    assert (sparse.edges.state_to_reward <= dense.edges.state_to_reward).all()
    assert any((a != b).any() for a, b in zip(sparse.edges, dense.edges, strict=True))
    assert_close(sparse.reward, dense.reward)
    np.testing.assert_array_equal(metrics["sparsity_loss"][1], 0)
    np.testing.assert_array_equal(together.sparsity, stack(state.sparsity, free.sparsity))
