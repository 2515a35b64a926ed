"""CrossQ: joint batches, steps and waiting equal their formulas."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import crossq, soft
from apportion.nn import optimise
from apportion.nn.renorm import RenormMLP
from builders import assert_close, assert_equal, initial, lane, moved, numpy, transitions
from probes import plain_renorm, plain_values

# Adam's first step is as long for the smallest gradient as for any: a short one, and its moments tell.
CONFIG = crossq.Config(
    hidden=(8, 8),
    critic_hidden=(8, 8),
    batch_size=6,
    discount=0.9,
    learning_rate=1e-5,
    statistics_rate=0.1,
    renorm_after=0,
)
UPDATE = jax.jit(crossq.make(CONFIG).update)
STEPS = transitions(1, 6)


@pytest.fixture(scope="module")
def state() -> soft.State:
    """Statistics have moved, and scales and shifts have a say."""
    names = ("actor", "critics", "actor_statistics", "critic_statistics")
    return moved(initial(crossq.make(CONFIG)), *names)._replace(log_temperature=jnp.asarray(-0.7))


def _judges(state: soft.State) -> Any:
    return numpy(jax.vmap(RenormMLP.folded)(state.critics, state.critic_statistics))


# --- Steps


def _plain_critics(state: soft.State, inputs: np.ndarray) -> list[Any]:
    """What `plain_renorm` gives for each critic."""
    critics, running = numpy((state.critics, state.critic_statistics))
    return [plain_renorm(lane(critics, j), inputs, lane(running, j), 0.1, True) for j in range(2)]


def _step_towards(state: soft.State, inputs: jax.Array, target: jax.Array) -> Any:
    """The critics after a step, with a target that does not depend on them."""

    def loss(critics: RenormMLP) -> jax.Array:
        found, _ = crossq.joint_values(critics, state.critic_statistics, inputs, CONFIG)
        return jnp.sum(jnp.mean((found[:, :6] - target[None, :]) ** 2, axis=1))

    return optimise.step(state.critic_optimiser, state.critics, jax.grad(loss)(state.critics), 0.5)


def test_critics_step_towards_the_soft_target_of_their_own_joint_batch(state: soft.State) -> None:
    key = jax.random.key(4)
    after, metrics = UPDATE(state, STEPS, STEPS.paid, key)

    outputs = state.actor.folded(state.actor_statistics)(STEPS.next_observation)
    next_action, next_log_density = numpy(soft.sample_action(outputs, jax.random.split(key)[0]))
    plain = numpy(STEPS)
    now = np.concatenate([plain.observation, plain.action], axis=1)
    inputs = np.concatenate([now, np.concatenate([plain.next_observation, next_action], axis=1)])

    def values(state: soft.State) -> np.ndarray:
        return np.stack([found[0][:, 0] for found in _plain_critics(state, inputs)])

    soft_values = values(state)[:, 6:].min(axis=0) - np.exp(-0.7) * next_log_density
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, soft_values)
    loss = ((values(state)[:, :6] - target) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], values(state)[:, :6].mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], plain.paid.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both
    expected = jax.jit(_step_towards)(state, *(jnp.asarray(x, jnp.float32) for x in (inputs, target)))
    assert_close((after.critics, after.critic_optimiser), expected)

    for critic, (_, means, variances) in enumerate(_plain_critics(state, inputs)):
        found = lane(after.critic_statistics, critic)
        assert_close((found.means, found.variances), (means, variances))
        assert found.batches == 1


def test_actor_and_temperature_step_at_every_third_update(state: soft.State) -> None:
    kept = (state.actor_loss, state.entropy)
    for number in range(1, 7):
        after, metrics = UPDATE(state, STEPS, STEPS.paid, jax.random.key(number))
        assert after.updates == number
        assert np.any(after.critics.scales[0] != state.critics.scales[0])
        waiting = ("actor", "actor_statistics", "actor_optimiser", "log_temperature", "temperature_optimiser")
        if number % 3:
            assert_equal(
                [getattr(after, name) for name in waiting], [getattr(state, name) for name in waiting]
            )
            assert_equal((metrics["actor_loss"], metrics["entropy"]), kept)
        else:
            loss, entropy = _plain_actor_loss(after, state, jax.random.split(jax.random.key(number))[1])
            np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4, atol=1e-5)
            assert np.sign(after.log_temperature - state.log_temperature) == -np.sign(entropy + 2)
            assert after.actor_statistics.batches == number // 3
            kept = (metrics["actor_loss"], metrics["entropy"])
        np.testing.assert_allclose(metrics["temperature"], np.exp(after.log_temperature), rtol=1e-6)
        state = after


def _plain_actor_loss(after: soft.State, before: soft.State, key: jax.Array) -> tuple[float, float]:
    """The actor learns from the batch; the critics that have just stepped judge by their statistics."""
    observation = numpy(STEPS.observation)
    actor, running = numpy((before.actor, before.actor_statistics))
    outputs, *_ = plain_renorm(actor, observation, running, 0.1, True)
    action, log_density = numpy(soft.sample_action(jnp.asarray(outputs, jnp.float32), key))
    lowest = plain_values(_judges(after), observation, action).min(axis=0)
    temperature = np.exp(float(before.log_temperature))
    return float((temperature * log_density - lowest).mean()), float(-log_density.mean())
