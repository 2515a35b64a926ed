"""GP-LRR: its loss is the likelihood's, squared error is the special case, and a known reward is found."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from apportion.core.types import Batch
from apportion.methods import gp_lrr, rd
from apportion.methods.gp_lrr import Kernel
from builders import SPEC, assert_close, initial, numpy, segments, transitions

METHOD = gp_lrr.make(gp_lrr.Config(hidden=(6,)))
KERNEL = Kernel(jnp.asarray(0.3), jnp.asarray(-1.0), jnp.asarray(0.7))


@pytest.fixture(scope="module")
def state() -> Any:
    return initial(METHOD)


def test_the_loss_is_minus_twice_the_log_likelihood_by_step(state: Any) -> None:
    """Of the same error δ/T at every step of a segment; up to log 2π, which teaches nothing."""
    data = segments(1, 4)  # 1 to 4 steps
    errors = numpy(gp_lrr.segment_errors(state.network, data))
    terms = []
    for m, length in enumerate(np.asarray(data.length)):
        x = np.concatenate([data.observations[m, :length], data.actions[m, :length]], axis=1)
        square = ((x[:, None] - x[None, :]) ** 2).sum(axis=-1)
        noise = (np.exp(-1.0) + 1e-2) * np.eye(length)
        covariance = np.exp(0.3) * np.exp(-square / (2 * np.exp(0.7) ** 2)) + noise
        density = multivariate_normal(np.zeros(length), covariance).logpdf(np.full(length, errors[m]))
        terms.append((-2 * density - length * np.log(2 * np.pi)) / length)
    found = gp_lrr.likelihood_loss(KERNEL, jnp.asarray(errors, jnp.float32), data)
    np.testing.assert_allclose(found, np.mean(terms), rtol=1e-4)


def test_with_the_identity_for_a_kernel_it_is_rd() -> None:
    """The same network from the same key makes the same steps."""
    key, data = jax.random.key(0), Batch(segments(1, 4), transitions(2, 4))
    plain = rd.make(rd.Config(hidden=(6,)))
    special = gp_lrr.make(gp_lrr.Config(hidden=(6,), kernel="identity"))
    expected, _ = jax.jit(lambda: plain.update(plain.init(key, SPEC), data, key))()
    found, _ = jax.jit(lambda: special.update(special.init(key, SPEC), data, key))()
    assert_close(found.network.mean, expected.network)


def test_a_thousand_like_steps_stay_finite() -> None:
    """A step in place, over and over: the kernel's matrix is as near to singular as it comes."""
    data = segments(1, 1)
    still = data._replace(
        observations=jnp.ones((1, 1001, 3)),
        actions=jnp.ones((1, 1000, 2)),
        mask=jnp.ones((1, 1000), bool),
        length=jnp.asarray([1000], jnp.int32),
    )
    sharp = Kernel(jnp.asarray(2.0), jnp.asarray(-9.0), jnp.asarray(0.0))
    slope = jax.jit(jax.grad(lambda kernel: gp_lrr.likelihood_loss(kernel, jnp.ones(1), still)))(sharp)
    assert all(np.isfinite(leaf) for leaf in slope)
