"""FlashSAC: projection, joint batches and steps equal their formulas."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic, flashsac, soft
from apportion.nn import optimise
from apportion.nn.unit import UnitResidual
from builders import assert_close, assert_equal, initial, lane, moved, numpy, transitions
from probes import plain_unit

# Adam's first step is as long for the smallest gradient as for any: a short one, and its moments tell.
CONFIG = flashsac.Config(
    hidden=(8, 8), critic_hidden=(8, 8), batch_size=6, discount=0.9, learning_rate=1e-5, decay_updates=4
)
UPDATE = jax.jit(flashsac.make(CONFIG).update)
STEPS = transitions(1, 6)
BINS = np.linspace(-5, 5, 101)


@pytest.fixture(scope="module")
def state() -> soft.State:
    """Statistics have moved, norms have a say, and targets differ from critics."""
    names = ("actor", "critics", "target_critics", "actor_statistics", "critic_statistics")
    return moved(initial(flashsac.make(CONFIG)), *names)._replace(log_temperature=jnp.asarray(-0.7))


def _plain_projection(
    probabilities: np.ndarray, rewards: Any, terminated: Any, costs: Any, discount: float
) -> np.ndarray:
    """Bin by bin."""
    found = np.zeros_like(probabilities)
    for row, (reward, over, cost) in enumerate(zip(rewards, terminated, costs, strict=True)):
        for z, probability in zip(BINS, probabilities[row], strict=True):
            moved = reward if over else reward + discount * (z - cost)
            place = (min(max(moved, -5.0), 5.0) + 5.0) / 0.1
            below = min(int(place), 99)
            found[row, below] += probability * (1 - (place - below))
            found[row, below + 1] += probability * (place - below)
    return found


# --- The projection


def test_the_projection_shares_each_bin_between_two_neighbours() -> None:
    """Some rewards lead far beyond the ends, some steps end, and entropy costs something or pays."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(101), 8)
    rewards = [0.0, 0.33, -0.71, 4.9, -4.9, 30.0, -30.0, 1.234]
    terminated, costs = [False, True] * 4, [0.0, 1.0, -2.5, 0.4, 1.0, 0.0, 0.0, 3.0]
    arrays = (jnp.asarray(part) for part in (probabilities, rewards, terminated, costs))
    found = jax.jit(flashsac.projected, static_argnums=4)(*arrays, 0.9)
    expected = _plain_projection(probabilities, rewards, terminated, costs, 0.9)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


# --- Steps


def _log_probabilities(critics: Any, inputs: np.ndarray) -> np.ndarray:
    logits = np.stack([plain_unit(lane(critics, j), inputs)[0] for j in range(2)])
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _joint_inputs(state: soft.State, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """(s, a) and (s', a') in one batch, and log π(a'|s'), by the actor's running statistics."""
    outputs = state.actor.folded(state.actor_statistics)(STEPS.next_observation)
    next_action, log_density = numpy(soft.sample_action(flashsac.bounded(outputs), key))
    plain = numpy(STEPS)
    now = np.concatenate([plain.observation, plain.action], axis=1)
    return np.concatenate([now, np.concatenate([plain.next_observation, next_action], axis=1)]), log_density


def _plain_target(state: soft.State, inputs: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    following = np.exp(_log_probabilities(numpy(state.target_critics), inputs)[:, 6:])
    lower = (following @ BINS).argmin(axis=0)
    chosen = following[lower, np.arange(6)]
    assert set(lower) == {0, 1}  # the batch has both
    assert numpy(STEPS).terminated.any() and not numpy(STEPS).terminated.all()  # noqa: PT018
    costs = np.exp(-0.7) * log_density
    return _plain_projection(chosen, numpy(STEPS).paid, numpy(STEPS).terminated, costs, 0.9)


def test_critics_step_towards_the_lower_target_of_a_joint_batch(state: soft.State) -> None:
    key, state = jax.random.key(4), state._replace(updates=jnp.asarray(1, jnp.int32))  # the actor waits
    inputs, log_density = _joint_inputs(state, jax.random.split(key)[1])
    target = _plain_target(state, inputs, log_density)
    after, metrics = UPDATE(state, STEPS, STEPS.paid, key)

    found = _log_probabilities(numpy(state.critics), inputs)[:, :6]
    np.testing.assert_allclose(metrics["critic_loss"], -(target * found).sum(axis=-1).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], (np.exp(found) @ BINS).mean(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], STEPS.paid.mean(), rtol=1e-4)

    def loss(critics: UnitResidual) -> jax.Array:
        found, _ = flashsac.joint_log_probabilities(
            critics, state.critic_statistics, jnp.asarray(inputs, jnp.float32)
        )
        return -jnp.mean(jnp.sum(jnp.asarray(target, jnp.float32)[None] * found[:, :6], axis=-1))

    slope, share = jax.jit(jax.grad(loss))(state.critics), CONFIG.rate_share(state.updates)
    stepped, optimiser = optimise.step(state.critic_optimiser, state.critics, slope, share=share)
    stepped = jax.vmap(UnitResidual.unit)(stepped)
    assert_close(after.critics, stepped)
    assert_close(after.critic_optimiser, optimiser)
    assert_close(after.target_critics, actor_critic.follow(state.target_critics, stepped, 0.01))
    for critic in range(2):
        _, means, variances = plain_unit(lane(numpy(state.critics), critic), inputs)
        before, now = lane(numpy(state.critic_statistics), critic), lane(after.critic_statistics, critic)
        assert_close(now.means, [m + 0.01 * (f - m) for m, f in zip(before.means, means, strict=True)])
        moved = [v + 0.01 * (f - v) for v, f in zip(before.variances, variances, strict=True)]
        assert_close(now.variances, moved)


def test_actor_and_temperature_step_at_every_second_update_before_the_critics(state: soft.State) -> None:
    for number in range(4):
        key = jax.random.key(number)
        after, metrics = UPDATE(state, STEPS, STEPS.paid, key)
        assert after.updates == number + 1
        waiting = ("actor", "actor_statistics", "actor_optimiser", "log_temperature", "temperature_optimiser")
        if number % 2:
            assert_equal(
                [getattr(after, name) for name in waiting], [getattr(state, name) for name in waiting]
            )
        else:
            loss, entropy = _plain_actor_loss(state, jax.random.split(key)[0])
            np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4, atol=1e-5)
            aim = np.log(2 * np.pi * np.e * 0.15**2)  # of two actions
            assert np.sign(after.log_temperature - state.log_temperature) == -np.sign(entropy - aim)
        np.testing.assert_allclose(metrics["temperature"], np.exp(after.log_temperature), rtol=1e-6)
        state = after


def _plain_actor_loss(state: soft.State, key: jax.Array) -> tuple[float, float]:
    """s and s' share statistics, the loss is of s alone, and critics judge by what they know."""
    plain = numpy(STEPS)
    outputs, *_ = plain_unit(numpy(state.actor), np.concatenate([plain.observation, plain.next_observation]))
    mean, raw = np.split(outputs[:6], 2, axis=1)
    shown = np.concatenate([mean, -10 + 6 * (1 + np.tanh(raw))], axis=1)
    action, log_density = numpy(soft.sample_action(jnp.asarray(shown, jnp.float32), key))
    inputs = np.concatenate([plain.observation, action], axis=1)
    values = []
    for critic in range(2):
        running = lane(numpy(state.critic_statistics), critic)
        logits = plain_unit(lane(numpy(state.critics), critic), inputs, (running.means, running.variances))[0]
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        values.append(chances @ BINS / chances.sum(axis=1))
    lowest = np.minimum(*values)
    temperature = np.exp(float(state.log_temperature))
    return float((temperature * log_density - lowest).mean()), float(-log_density.mean())


def test_lengths_hold_at_the_start_and_after_every_step(state: soft.State) -> None:
    def lengths(network: Any) -> list[np.ndarray]:
        columns = [np.sqrt((weight**2).sum(axis=-2)) for weight in network.weights]
        pairs = zip(network.scales, network.shifts, strict=True)
        norms = [(scale**2 + shift**2).mean(axis=-1) for scale, shift in pairs]
        return [*columns, *norms, (network.rms_scale**2).mean(axis=-1)]

    fresh = initial(flashsac.make(CONFIG))
    quick = flashsac.make(flashsac.Config(hidden=(8,), critic_hidden=(8,), batch_size=6, learning_rate=0.1))
    learner, update = initial(quick), jax.jit(quick.update)
    for number in range(3):
        learner, _ = update(learner, STEPS, STEPS.paid, jax.random.key(number))
        for network in (fresh.actor, fresh.critics, fresh.target_critics, learner.actor, learner.critics):
            for found in lengths(numpy(network)):
                np.testing.assert_allclose(found, 1, rtol=1e-5)


def test_the_learning_rate_falls_to_half_by_a_cosine_over_the_whole_training() -> None:
    shares = [float(CONFIG.rate_share(jnp.asarray(updates))) for updates in (0, 1, 2, 3, 4, 9)]
    expected = [1, 0.75 + 0.25 * np.sqrt(0.5), 0.75, 0.75 - 0.25 * np.sqrt(0.5), 0.5, 0.5]
    np.testing.assert_allclose(shares, expected, rtol=1e-5)
    assert float(flashsac.Config().rate_share(jnp.asarray(7))) == 1
    start = optimise.start(jnp.ones(2), 0.1)
    half, _ = optimise.step(start, jnp.ones(2), jnp.ones(2), share=jnp.asarray(0.5))
    np.testing.assert_allclose(half, 1 - 0.05, rtol=1e-5)
