"""Mixtures of Gaussians: what is drawn from one has its moments, and equal members make one mixture."""

import jax
import jax.numpy as jnp
import numpy as np

from apportion.nn import losses, mixture
from apportion.nn.mixture import Mixture

RNG = np.random.default_rng(0)
MEMBERS = Mixture(*(jnp.asarray(RNG.normal(size=(2, 5, 3)), jnp.float32) for _ in range(3)))  # [E, N, K]
JOINED = mixture.joined(MEMBERS)


def _density(one: Mixture, target: np.ndarray) -> np.ndarray:
    """[N] in plain NumPy."""
    means, stds, logits = np.asarray(one.means), np.exp(one.log_stds), np.asarray(one.logits)
    weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    bells = np.exp(-0.5 * ((target[:, None] - means) / stds) ** 2) / (stds * np.sqrt(2 * np.pi))
    return (weights * bells).sum(axis=-1)


def test_joined_members_have_the_mean_of_their_densities() -> None:
    target = RNG.normal(size=5).astype(np.float32)
    alone = [_density(jax.tree.map(lambda x, e=e: x[e], MEMBERS), target) for e in range(2)]
    expected = -np.log(np.mean(alone, axis=0)).mean()
    np.testing.assert_allclose(losses.mixture_nll(jnp.asarray(target), *JOINED), expected, rtol=1e-5)


def test_the_spread_is_that_of_what_is_drawn() -> None:
    """Also what members disagree about is in it."""
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: mixture.draw(JOINED, key)))(keys))
    spread = np.exp(np.asarray(mixture.log_spread(JOINED)))
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.05)
    agreeing = MEMBERS._replace(means=jnp.broadcast_to(MEMBERS.means[:1], MEMBERS.means.shape))
    apart = agreeing._replace(means=agreeing.means.at[1].add(9.0))
    widened = mixture.log_spread(mixture.joined(apart)) - mixture.log_spread(mixture.joined(agreeing))
    assert np.all(np.asarray(widened) > 0)
