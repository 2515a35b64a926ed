"""A lane's policy for use outside of training: the environment's own observation in, its own action out.

It acts in NumPy, with the same function as the workers. `export_policy` writes all that it takes into one
file, for programs that have neither JAX nor this package.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion import __version__
from apportion.core.config import UserError, check
from apportion.core.files import write_bytes
from apportion.core.spec import Spec
from apportion.envs.acting import Actor, act
from apportion.envs.spaces import bounds, own_action
from apportion.runs.folder import RunFolder
from apportion.runs.learned import Learned, check_lane, read_learned


@dataclass(frozen=True, eq=False)
class Policy:
    """Call it with one observation [S]. With a random generator it samples, as in training; else it does what
    it holds best."""

    spec: Spec
    head: str
    actor: Actor
    facts: dict[str, Any]  # whose policy it is: env, method, seed, step
    skipped: tuple[str, ...] = ()  # a line for each newer checkpoint that could not be used, or is gone

    def __call__(self, observation: Any, rng: np.random.Generator | None = None) -> Any:
        seen = np.asarray(observation, np.float32)
        wanted = self.actor["mask"].shape
        check(seen.shape == wanted, f"an observation of shape {seen.shape} was given: {wanted} is needed")
        bad = np.flatnonzero(~np.isfinite(seen))
        if bad.size:
            name = self.spec.observation_names[bad[0]]
            raise UserError(f"an observation with {seen[bad[0]]} in dimension {bad[0]} ({name}) was given")
        return own_action(self.spec, act(self.actor, self.head, seen, rng))


def read_policy(run: RunFolder, lane: int = 0, best: bool = False) -> Policy:
    """The newest policy of a lane, or its best one."""
    learned = read_learned(run, best)
    check_lane(lane, learned.config.lanes, run)
    spec = run.read_spec()
    actor = {name: array[lane] for name, array in learned.actors.items()}
    facts = {
        "env": spec.env_id,
        "method": learned.config.method,
        "backbone": learned.config.backbone,
        "seed": learned.config.seeds[lane],
        "step": learned.step if learned.best_steps is None else learned.best_steps[lane],
    }
    own, head = _own_inputs(actor, spec, learned), learned.config.make_backbone().head
    return Policy(spec, head, own, facts, tuple(learned.skipped))


def export_policy(policy: Policy, path: Path) -> int:
    """Write a policy as arrays (.npz), and say how many bytes it takes."""
    check_export(path)
    spec = policy.spec
    arrays: dict[str, Any] = {
        **policy.actor,
        "head": policy.head,
        "observation_names": spec.observation_names[: len(policy.actor["mask"])],
        "action_names": spec.action_names,
        **policy.facts,
        "apportion": __version__,
    }
    if spec.discrete:
        arrays["first_action"] = spec.first_action
    else:
        arrays["low"], arrays["high"] = bounds(spec)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())
    return len(content.getvalue())


def check_export(path: Path) -> None:
    """Complain of a file name that says another format."""
    check(path.suffix == ".npz", f"{path}: the name of an exported policy must end in .npz")


def _own_inputs(actor: Actor, spec: Spec, learned: Learned) -> Actor:
    """The actor for observations as the environment itself gives them, without our padding of zeros.

    What the paper's set-up overwrites with zeros is not looked at.
    """
    own, zero_from = spec.observation_size - spec.padded, learned.config.env.zero_from
    fitted = dict(actor)
    for name in ("mask", "mean", "scale", "w0"):
        if name in actor:
            fitted[name] = actor[name][:own]
    if zero_from is not None:
        fitted["mask"] = fitted["mask"] * (np.arange(own) < zero_from)
    return fitted
