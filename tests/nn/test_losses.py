"""Losses where their formulas alone say too little: over all draws, where densities underflow, at the edge of
certainty. The methods' tests hold them against plain loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from apportion.core.types import Edges
from apportion.nn import losses
from builders import lane, segments

_mixture_nll = jax.jit(jax.value_and_grad(losses.mixture_nll, argnums=(0, 1, 2, 3)))


# A few steps that stand for all: lengths below, at and above the number of steps drawn, and a single step.
@pytest.mark.parametrize(
    ("steps", "count"), [(6, 2), (5, 3), (5, 4), (4, 4), (3, 4), (2, 3), (2, 5), (1, 2), (1, 3)]
)
def test_over_all_draws_the_corrected_loss_is_that_of_all_steps(steps: int, count: int) -> None:
    """Not in a sample: every subset (or sequence, where the segment is too short) once. Slopes, too."""
    if count > steps:
        draws = np.array(list(itertools.product(range(steps), repeat=count)))
    else:
        draws = np.array(list(itertools.combinations(range(steps), count)))
    rewards = jnp.asarray(np.random.default_rng(4).normal(size=steps), jnp.float32)
    number, mask = len(draws), jnp.ones((len(draws), steps), bool)
    whole = {"total": jnp.full(number, 0.7), "length": jnp.full(number, steps, jnp.int32), "mask": mask}
    drawn = segments(0, number)._replace(**whole)

    @jax.jit
    def slopes(rewards: jax.Array) -> tuple[tuple[jax.Array, jax.Array], ...]:
        def full(r: jax.Array) -> jax.Array:
            return losses.return_loss(r[None], lane(drawn, slice(1)))

        def biased(r: jax.Array) -> jax.Array:
            return losses.randomized_return_loss(r[draws], drawn)

        def unbiased(r: jax.Array) -> jax.Array:
            return biased(r) - losses.sampling_variance(r[draws], drawn.length)

        return tuple(jax.value_and_grad(loss)(rewards) for loss in (full, biased, unbiased))

    (full, slope), (biased, biased_slope), (unbiased, unbiased_slope) = slopes(rewards)
    np.testing.assert_allclose(unbiased, full, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(unbiased_slope, slope, rtol=1e-4, atol=1e-6)
    # What the draw adds is the variance of its mean; nothing where it takes all steps.
    added = np.var(np.asarray(rewards)[draws].mean(axis=1))
    np.testing.assert_allclose(biased - full, added, rtol=1e-3, atol=1e-6)
    all_drawn = steps in (1, count)
    assert all_drawn == (added < 1e-10)
    assert all_drawn == np.allclose(biased_slope, slope, atol=1e-6)


@pytest.mark.parametrize("target", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("log_std", [-5.0, 2.0])
@pytest.mark.parametrize("logit", [-1e3, 0.0, 1e3])
def test_mixture_nll_is_exact_where_densities_underflow(target: float, log_std: float, logit: float) -> None:
    """As log-densities in double precision say, with finite gradients."""
    arguments = (
        jnp.asarray([target]),
        jnp.asarray([[-1.0, 1.0]]),
        jnp.full((1, 2), log_std),
        jnp.asarray([[0.0, logit]]),
    )
    loss, gradients = _mixture_nll(*arguments)
    log_weights = np.array([0.0, logit]) - np.logaddexp(0.0, logit)
    expected = -np.logaddexp(*(log_weights + stats.norm.logpdf(target, [-1.0, 1.0], np.exp(log_std))))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_sparsity_loss_is_finite_for_edges_that_are_all_but_certain() -> None:
    logits = Edges(
        *(jnp.full(shape, sign * 200.0) for shape, sign in (((3,), 1), ((2,), -1), ((3, 3), -1), ((2, 3), 1)))
    )
    loss, gradient = jax.value_and_grad(losses.sparsity_loss)(logits, jnp.ones(5))
    assert np.isfinite(loss)
    assert all(np.isfinite(block).all() for block in gradient)
