"""Policies in NumPy: workers act for a whole chunk of steps without importing JAX.

An actor is a dict of arrays: `mask` [S] over the observation, layers w0, b0, w1, b1, ... with ReLU between
them, and whatever else its head reads. With `norm_epsilon` [] the layers between the first and the last are
residual blocks of two, and with `rms_epsilon` [] such blocks with a ReLU at their end. Where observations are
standardised, `mean` and `scale` [S] say how.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.registry import import_name
from apportion.core.spec import Spec

Actor = dict[str, NDArray[np.float32]]
Vector = NDArray[np.float32]
Head = Callable[[Vector, Actor, np.random.Generator | None], Vector]

NOISE_SPAN = 512  # steps after which noise is drawn anew in any case
FARTHEST = 10.0  # standard deviations: a standardised observation is cut there


def act(actor: Actor, head: str, observation: Vector, rng: np.random.Generator | None) -> Vector:
    """The action, in [-1, 1] or one-hot: sampled with `rng`, or the policy's best guess without."""
    if "mean" in actor:
        observation = standardise(observation, actor["mean"], actor["scale"])
    x: Vector = observation * actor["mask"]
    residual = "norm_epsilon" in actor or "rms_epsilon" in actor
    outputs = _residual(x, actor) if residual else _plain(x, actor)
    action = find_head(head)(outputs, actor, rng)
    # A diverged policy (NaN) stands still: if its environment failed, the other lanes would end with it.
    return action if np.isfinite(action).all() else np.zeros_like(action)


def standardise(x: NDArray[Any], mean: NDArray[Any], scale: NDArray[Any]) -> Vector:
    """(x - mean) / spread, cut at ±10."""
    return _clipped((x - mean) * scale, -FARTHEST, FARTHEST)


def _plain(x: Vector, actor: Actor) -> Vector:
    """ReLU layers one after the other."""
    layer = 0
    while f"w{layer + 1}" in actor:
        x = _affine(x, actor, layer)
        np.maximum(x, 0, out=x)
        layer += 1
    return _affine(x, actor, layer)


def _residual(x: Vector, actor: Actor) -> Vector:
    """Every two layers add to what the first one and those before them have added up: of its layer norm, or
    what is above 0. The last one reads the sum after the same layer norm, or after an RMS norm."""
    layer_norm = "norm_epsilon" in actor
    x = _affine(x, actor, 0)
    layer = 1
    while f"w{layer + 1}" in actor:
        inside = _affine(_normalised(x, actor) if layer_norm else x, actor, layer)
        np.maximum(inside, 0, out=inside)
        more = _affine(inside, actor, layer + 1)
        x += more if layer_norm else np.maximum(more, 0, out=more)
        layer += 2
    if layer_norm:
        x = _normalised(x, actor)
    else:
        x /= np.sqrt(x @ x / len(x) + actor["rms_epsilon"])
    return _affine(x, actor, layer)


def _normalised(x: Vector, actor: Actor) -> Vector:
    """A layer norm; np.mean and np.var take longer than this."""
    centred: Vector = x - x.sum() / len(x)
    centred /= np.sqrt(centred @ centred / len(x) + actor["norm_epsilon"])
    return centred


def _affine(x: Vector, actor: Actor, layer: int) -> Vector:
    y: Vector = x @ actor[f"w{layer}"]
    y += actor[f"b{layer}"]
    return y


def random_action(spec: Spec, rng: np.random.Generator) -> Vector:
    """Uniform in [-1, 1], or any one of discrete actions: what warm-up steps do."""
    if spec.discrete:
        return _one_hot(int(rng.integers(spec.action_size)), spec.action_size)
    return rng.uniform(-1, 1, spec.action_size).astype(np.float32)


def _tanh_gaussian(outputs: Vector, actor: Actor, rng: np.random.Generator | None) -> Vector:
    """SAC's head: outputs are mean and log standard deviation before the tanh."""
    size = len(outputs) // 2  # slices: np.split takes longer than the arithmetic
    return _squashed(outputs[:size], _clipped(outputs[size:], -20, 2), rng)


def _bounded_gaussian(outputs: Vector, actor: Actor, rng: np.random.Generator | None) -> Vector:
    """FlashSAC's head: a tanh takes the log standard deviation to [-10, 2]. Noise that was drawn
    beforehand is in `drawn_noise` [A]."""
    size = len(outputs) // 2
    return _squashed(outputs[:size], 6 * np.tanh(outputs[size:]) - 4, rng, actor.get("drawn_noise"))


def _squashed(
    mean: Vector, log_std: Vector, rng: np.random.Generator | None, noise: Vector | None = None
) -> Vector:
    """tanh(mean + exp(log_std) noise)."""
    if rng is None:
        return np.tanh(mean)
    if noise is None:
        noise = rng.standard_normal(len(mean), dtype=np.float32)
    return np.tanh(mean + np.exp(log_std) * noise)


def repeated_noise(
    seeds: Sequence[int], first: int, steps: int, size: int, longest: int
) -> NDArray[np.float32]:
    """Gaussian noise [steps, size] for the steps from number `first` on, each draw of which is kept for n
    steps: P(n) is proportional to n^-2, up to the longest.

    It depends on seeds and step numbers alone, so that nothing of it has to be saved: whoever asks for some
    steps again, or for others first, gets the same. For that a draw is cut short every few hundred steps.
    """
    spans = range(first // NOISE_SPAN, (first + steps - 1) // NOISE_SPAN + 1)
    noise = np.concatenate([_noise_of_span([*seeds, span], size, longest) for span in spans])
    return noise[first - spans[0] * NOISE_SPAN :][:steps]


def _noise_of_span(seeds: Sequence[int], size: int, longest: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seeds)
    lengths = np.arange(1, longest + 1)
    chances = 1.0 / lengths**2
    repeats = rng.choice(lengths, NOISE_SPAN, p=chances / chances.sum())
    return np.repeat(rng.standard_normal((NOISE_SPAN, size), dtype=np.float32), repeats, axis=0)[:NOISE_SPAN]


def _tanh_noise(outputs: Vector, actor: Actor, rng: np.random.Generator | None) -> Vector:
    """TD3's and DDPG's head: the tanh itself, and to explore Gaussian noise of size `noise` [] on top."""
    action: NDArray[Any] = np.tanh(outputs)
    if rng is None:
        return action
    noise = actor["noise"] * rng.standard_normal(action.shape[0], dtype=np.float32)
    return _clipped(action + noise, -1, 1)


def _epsilon_greedy(outputs: Vector, actor: Actor, rng: np.random.Generator | None) -> Vector:
    """DQN's head: outputs are values of actions. To explore, a share `epsilon` [] of actions is random."""
    if not np.isfinite(outputs).all():
        return np.full_like(outputs, np.nan)  # argmax would choose one all the same
    best = int(np.argmax(outputs))
    if rng is not None and rng.random() < actor["epsilon"]:
        best = int(rng.integers(outputs.shape[0]))
    return _one_hot(best, outputs.shape[0])


def _sampled(outputs: Vector, actor: Actor, rng: np.random.Generator | None) -> Vector:
    """PPO's head: a tanh-Gaussian around the outputs with spread exp(`log_std` [A]), or without that array,
    for discrete actions, one of them by the softmax of the outputs. With `noise` [A], as IQL's has it, that
    is added after the tanh."""
    if "noise" in actor:
        return _tanh_noise(outputs, actor, rng)
    if "log_std" in actor:
        return _squashed(outputs, actor["log_std"], rng)
    if not np.isfinite(outputs).all():
        return np.full_like(outputs, np.nan)  # argmax would choose one all the same
    if rng is not None:
        # The largest of outputs with Gumbel noise is as likely as the softmax says.
        outputs = outputs + rng.gumbel(size=len(outputs)).astype(np.float32)
    return _one_hot(int(np.argmax(outputs)), len(outputs))


def _clipped(x: Vector, low: float, high: float) -> Vector:
    """np.clip takes longer than this for so few numbers."""
    return np.minimum(np.maximum(x, low), high)


def _one_hot(index: int, size: int) -> Vector:
    action = np.zeros(size, np.float32)
    action[index] = 1
    return action


HEADS: dict[str, Head] = {
    "tanh_gaussian": _tanh_gaussian,
    "bounded_gaussian": _bounded_gaussian,
    "tanh_noise": _tanh_noise,
    "epsilon_greedy": _epsilon_greedy,
    "sampled": _sampled,
}


@cache
def find_head(name: str) -> Head:
    """How outputs become an action: one of HEADS, or module:function of a user's own backbone."""
    if name in HEADS:
        return HEADS[name]
    check(
        ":" in name, f"unknown head {name!r}: use one of {', '.join(HEADS)}, or module:function of your own"
    )
    found = import_name(name, "the head")
    check(callable(found), f"the head {name} is no function: write def head(outputs, actor, rng)")
    return found
