"""SimBa: SAC's update on residual networks with weight decay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic, simba, soft
from apportion.nn import optimise
from builders import assert_close, initial, moved, numpy, transitions
from probes import plain_residual, plain_values

CONFIG = simba.Config(hidden=(8,), critic_hidden=(8, 8), batch_size=6, discount=0.9, weight_decay=0.5)
STEPS = transitions(1, 6)


@pytest.fixture(scope="module")
def state() -> soft.State:
    """As if it had learned: biases have a say, and targets differ from critics."""
    return moved(initial(simba.make(CONFIG)), "actor", "critics", "target_critics")


def test_an_update_is_that_of_sac_with_weight_decay(state: soft.State) -> None:
    key = jax.random.key(4)
    after, metrics = jax.jit(simba.make(CONFIG).update)(state, STEPS, STEPS.paid, key)

    target_key, _ = jax.random.split(key)
    sampled = soft.sample_action(state.actor(STEPS.next_observation), target_key)
    plain, (next_action, next_log_density) = numpy(STEPS), numpy(sampled)
    judged = plain_values(
        numpy(state.target_critics), plain.next_observation, next_action, plain_residual
    ).min(axis=0)
    soft_values = judged - 0.01 * next_log_density
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, soft_values)
    values = plain_values(numpy(state.critics), plain.observation, plain.action, plain_residual)
    loss = ((values - target) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)

    target = jnp.asarray(target, jnp.float32)
    without = optimise.start(state.critics, 1e-4)
    stepped, _, _ = jax.jit(actor_critic.step_critics)(state.critics, without, STEPS, target)
    shorter = jax.tree.map(lambda new, old: new - 1e-4 * 0.5 * old, stepped, state.critics)
    assert_close(after.critics, shorter)


def test_actor_and_critics_decay_not_the_temperature_and_half_of_sac_s_entropy_is_aimed_at(
    state: soft.State,
) -> None:
    for optimiser in (state.actor_optimiser, state.critic_optimiser):
        assert (float(optimiser.learning_rate), float(optimiser.weight_decay)) == pytest.approx((1e-4, 0.5))
    assert state.temperature_optimiser.weight_decay is None
    assert float(jnp.exp(state.log_temperature)) == pytest.approx(0.01)
    assert simba.Config().entropy_for(6) == -3.0
    assert simba.Config(target_entropy=-1.0).entropy_for(6) == -1.0
