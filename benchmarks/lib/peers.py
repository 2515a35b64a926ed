"""One full step, environment and update: ours as `apportion train` takes it, and those of others.

A stepper takes so many steps when called. All play the same task in this process's environment, each with the
library's own defaults (networks of 256-256, batches of 256, one update per environment step).
"""

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import jax

from apportion.envs.make import AnyEnv
from apportion.training import loop as train
from apportion.training.loop import Snapshot
from apportion.training.presets import paper, preset
from apportion.training.settings import Config
from lib import timing

OURS, PUBLISHED = "apportion_grd", "apportion_grd_published"
WARMUP = 1000  # random steps before the first update: one episode

Stepper = Callable[[int], None]


def our_config(env_id: str, steps: int | None = None) -> Config:
    """The default settings of `apportion train ENV`, but a short warm-up and no evaluation.

    With `steps`, iterations of about so many steps, at the same number of updates per step.
    """
    config = preset(env_id, "grd", "sac")
    schedule = replace(config.schedule, steps=10**9, warmup_steps=WARMUP, evaluate_every=10**9)
    if steps is not None:
        schedule = _shortened(schedule, steps, config.make_method().sampling.every)
    return replace(config, schedule=schedule)


def _shortened(schedule: Any, steps: int, every: int) -> Any:
    updates = schedule.updates_per_iteration * steps // schedule.steps_per_iteration
    whole = updates * schedule.steps_per_iteration == schedule.updates_per_iteration * steps
    if updates == 0 or updates % every or not whole:
        return schedule
    return replace(schedule, steps_per_iteration=steps, updates_per_iteration=updates)


@contextlib.contextmanager
def our_training(config: Config) -> Iterator[Stepper]:
    """`train.online` itself, past its warm-up and its compilation."""
    with train.open_pool(config) as pool:
        snapshots = train.online(config, pool)
        while not next(snapshots).metrics:
            pass

        def steps(count: int) -> None:
            snapshot: Snapshot | None = None
            for _ in range(max(1, count // config.schedule.steps_per_iteration)):
                snapshot = next(snapshots)
            # Updates and the next chunk are under way: wait, so that as many of each are timed.
            if snapshot is not None:
                jax.device_get(snapshot.metrics)
                snapshot.save()

        yield steps


def torch_eager_grd(env_id: str) -> Stepper:
    from lib.torch_grd import Training

    env = _environment(env_id)
    limit = env.spec.max_episode_steps if env.spec else None
    return Training(env, limit or 1000).steps


def sb3_sac(env_id: str) -> Stepper:
    from stable_baselines3 import SAC

    return _library_steps(SAC, env_id)


def sbx_sac(env_id: str) -> Stepper:
    from sbx import SAC

    return _library_steps(SAC, env_id)


def _library_steps(algorithm: Any, env_id: str) -> Stepper:
    model = algorithm("MlpPolicy", _environment(env_id), learning_starts=WARMUP, seed=0)
    model.learn(WARMUP + 1)

    def steps(count: int) -> None:
        model.learn(count, reset_num_timesteps=False)

    return steps


PEERS: dict[str, tuple[str, Callable[[str], Stepper]]] = {  # name → package it needs, how to start it
    "torch_eager_grd": ("torch", torch_eager_grd),
    "sb3_sac": ("stable_baselines3", sb3_sac),
    "sbx_sac": ("sbx", sbx_sac),
}


def installed() -> list[str]:
    """The peers that can run here."""
    return [name for name, (package, _) in PEERS.items() if importlib.util.find_spec(package) is not None]


def compare(
    env_id: str,
    steps: int,
    rounds: int,
    report: Callable[[str], None],
    names: list[str] | None = None,
    published: bool = False,
) -> dict[str, Any]:
    """Milliseconds per step of ours and of each peer, in turn, and how many times faster ours is.

    `published` adds ours with the paper's settings, which are also those of the PyTorch peer.
    """
    with contextlib.ExitStack() as stack:
        steppers: dict[str, Stepper] = {}
        for name in installed() if names is None else names:
            report(f"starting {name}")
            steppers[name] = PEERS[name][1](env_id)
        config = our_config(env_id, steps)
        report(f"starting {OURS}")
        everyone = {OURS: stack.enter_context(our_training(config)), **steppers}
        if published:
            report(f"starting {PUBLISHED}")
            everyone[PUBLISHED] = stack.enter_context(our_training(paper(config)))
        steps = max(steps, config.schedule.steps_per_iteration)
        runs = {name: _bound(stepper, steps) for name, stepper in everyone.items()}
        for name, run in runs.items():
            report(f"warming {name} up")
            run()
        report(f"{rounds} rounds of {steps} steps: {', '.join(runs)}")
        taken = timing.interleaved(runs, rounds)
    others = {name: timing.median(timing.ratios(taken[OURS], taken[name])) for name in taken if name != OURS}
    return {
        "steps_per_round": steps,
        "config": config.to_dict(),
        "milliseconds": {name: [1e3 * each / steps for each in seconds] for name, seconds in taken.items()},
        "published_ratio": others.pop(PUBLISHED, None),
        "ratios": others,
    }


def _bound(stepper: Stepper, steps: int) -> Callable[[], None]:
    return lambda: stepper(steps)


def _environment(env_id: str) -> AnyEnv:
    """As a user of the other library would make it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)
        return gymnasium.make(env_id)
