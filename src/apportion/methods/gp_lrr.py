"""GP-LRR, Gaussian-process likelihood reward redistribution (Xiao & Yu, AAAI 2026).

The rewards of a segment are one draw of a Gaussian process: a network gives its mean, a kernel over states
and actions says how far errors at two steps go together. What each step must have earned, all others being as
expected, is off by the same δ = total - Σ μ; the likelihood of these errors is maximised. Where the kernel
tells any two steps apart and nothing else varies, this is RD's squared error.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.core.config import positive
from apportion.core.spec import Spec
from apportion.core.types import Method, Segments, Transitions
from apportion.methods import regression
from apportion.methods.regression import Loss, NetworkConfig
from apportion.nn import losses
from apportion.nn.losses import tokens_of
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(NetworkConfig):
    """GP-LRR: rewards of a segment as a Gaussian process; squared error is its special case."""

    update_every: int = 10
    """Updates of the policy for one of the reward model: a segment costs T³ operations."""
    kernel: Literal["rbf", "identity"] = "rbf"
    """How errors at two steps go together: the closer the likelier, or not at all (then it is RD)."""
    length_scale: float = 1.0
    """Where the kernel's length starts, in units of √(S + A)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "method.", "length_scale")


class Kernel(NamedTuple):
    """Logarithms of what the kernel is made of; all are learned."""

    log_signal: Float[Array, ""]  # variance that like steps share
    log_noise: Float[Array, ""]  # variance of each step by itself
    log_length: Float[Array, ""]  # how far apart steps are still alike


class Process(NamedTuple):
    mean: MLP
    kernel: Kernel | None  # None: the identity


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, spec: Spec) -> Process:
        inputs = spec.observation_size + spec.action_size
        half, length = (
            jnp.asarray(math.log(x), jnp.float32) for x in (0.5, config.length_scale * inputs**0.5)
        )
        kernel = Kernel(half, half, length) if config.kernel == "rbf" else None
        return Process(MLP.init(key, (inputs, *config.hidden, 1)), kernel)

    def loss(process: Process, segments: Segments, key: PRNGKeyArray) -> Loss:
        errors = segment_errors(process, segments)
        value = likelihood_loss(process.kernel, errors, segments)
        return value, {"likelihood_loss": value, "squared_error": jnp.mean(errors**2)}

    def reward(process: Process, transitions: Transitions) -> Float[Array, "*B"]:
        return process.mean.scalar(transitions.observation, transitions.action)

    return regression.build(config, network, loss, last=lambda process: process.mean, reward=reward)


def segment_errors(process: Process, segments: Segments) -> Float[Array, "M"]:
    """-δ / T of each segment, with δ = total - Σ_t μ_t."""
    return losses.segment_errors(process.mean.scalar(tokens_of(segments)), segments)


def likelihood_loss(kernel: Kernel | None, errors: Float[Array, "M"], segments: Segments) -> Float[Array, ""]:
    """mean_m [(δ/T)² 1ᵀK⁻¹1 + log|K|] / T: minus twice the log-likelihood of the error δ/T at every step."""
    if kernel is None:  # 1ᵀ1 = T, and log|1| = 0
        return jnp.mean(errors**2)

    def one(error: Array, tokens: Array, mask: Array) -> Float[Array, ""]:
        steps = mask.astype(tokens.dtype)
        factor = jnp.linalg.cholesky(covariance(kernel, tokens, mask))
        whitened = jax.scipy.linalg.solve_triangular(factor, steps, lower=True)
        log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        return (error**2 * jnp.sum(whitened**2) + log_determinant) / jnp.maximum(jnp.sum(steps), 1.0)

    return jnp.mean(jax.vmap(one)(errors, tokens_of(segments), segments.mask))


def covariance(kernel: Kernel, tokens: Float[Array, "T I"], mask: Bool[Array, "T"]) -> Float[Array, "T T"]:
    """σ_f² exp(-|x_t - x_u|² / 2ℓ²) + σ_n² [t = u]; on padding the identity, which adds nothing."""
    square = jnp.sum(tokens**2, axis=1)
    distance = jnp.maximum(square[:, None] + square[None, :] - 2.0 * tokens @ tokens.T, 0.0)
    alike = jnp.exp(kernel.log_signal - 0.5 * distance * jnp.exp(-2.0 * kernel.log_length))
    # A kernel over a thousand like steps has to stay invertible in single precision.
    noise = jnp.exp(kernel.log_noise) + 1e-2
    both = mask[:, None] & mask[None, :]
    return jnp.where(both, alike, 0.0) + jnp.diag(jnp.where(mask, noise, 1.0))
