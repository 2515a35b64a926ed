"""The settings of one training: which environment, method and backbone, for how long, with which seeds."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from apportion import backbones, methods
from apportion.backbones import flashsac
from apportion.core.config import UserError, at_least, check, from_dict, to_dict
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Method
from apportion.envs.make import EnvConfig

MOST_LANES = 10_000  # in one process; more are a typing error
NO_POLICY = "none"  # the backbone of a run that was fitted to logged episodes


@dataclass(frozen=True)
class Schedule:
    """How long to train, and what happens when."""

    steps: int = 1_000_000
    """Environment steps per lane (rounded up to whole iterations)."""
    steps_per_iteration: int = 100
    """Environment steps between two rounds of updates."""
    updates_per_iteration: int = 100
    """Updates in one round."""
    warmup_steps: int = 10_000
    """Steps with random actions before the first update."""
    evaluate_every: int = 10_000
    """Steps between evaluations."""
    evaluation_episodes: int = 10
    """Episodes per evaluation and lane, on separate environments, without exploration."""
    replay_steps: int = 1_000_000
    """Steps that the replay holds; the oldest whole episodes make room."""
    overlap: bool = True
    """Collect while updating, with a policy one iteration old; False alternates strictly."""
    workers: int | None = None
    """Environment processes; chosen by the number of lanes and cores when not given. 0: in this process."""
    strict: bool = False
    """End at the first failure of an environment, or of a seed's losses, instead of going on without it."""

    def __post_init__(self) -> None:
        at_least(self, "", steps=1, steps_per_iteration=1, updates_per_iteration=1, evaluate_every=1)
        at_least(self, "", evaluation_episodes=1, warmup_steps=0, workers=0)
        most = 10**15  # more are a typing error
        check(self.replay_steps <= most, f"replay_steps={self.replay_steps} must be at most {most:,}")

    @property
    def iterations(self) -> int:
        return math.ceil(self.steps / self.steps_per_iteration)

    @property
    def updates(self) -> int:
        """Of the policy, at the most: iterations that end in the warm-up make none."""
        idle = max(0, math.ceil(self.warmup_steps / self.steps_per_iteration) - 1)
        return max(1, self.iterations - idle) * self.updates_per_iteration


@dataclass(frozen=True)
class _Saved:
    """What `Config.to_dict` writes; whose settings those of method and backbone are, their names say."""

    env: EnvConfig
    method: dict[str, Any]
    backbone: dict[str, Any]
    schedule: Schedule
    seed: int
    lanes: int
    normalise: bool


@dataclass(frozen=True)
class Config:
    """One training: an environment, a method, a backbone, and lanes with seeds seed, seed+1, ..."""

    env: EnvConfig
    method: str = "grd"
    method_config: Any = None
    backbone: str = "sac"
    backbone_config: Any = None
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    lanes: int = 1
    normalise: bool = True

    def __post_init__(self) -> None:
        method = methods.find(self.method)
        backbone = backbones.find(self.backbone) if self.has_policy else None
        check(1 <= self.lanes <= MOST_LANES, f"seeds={self.lanes} must be from 1 to {MOST_LANES:,}")
        at_least(self, "", seed=0)
        last, limit = self.seeds[-1], 2**32  # random keys are made from 32 bits
        check(last < limit, f"seed={self.seed} is too large: the last lane's, {last}, must be below {limit}")
        if self.method_config is None:
            object.__setattr__(self, "method_config", method.config())
        if self.backbone_config is None and backbone is not None:
            object.__setattr__(self, "backbone_config", backbone.config())
        check(
            self.normalise or backbone is None or self.make_backbone().returns is None,
            f"{self.backbone} needs rewards in its own unit: leave out --no-normalise and --preset paper",
        )

    @property
    def seeds(self) -> list[int]:
        return [self.seed + lane for lane in range(self.lanes)]

    @property
    def has_policy(self) -> bool:
        """False for a decomposition alone, learned from logged episodes."""
        return self.backbone != NO_POLICY

    @property
    def from_log(self) -> bool:
        """Whether all was learned from logged episodes: there is no environment."""
        return not self.has_policy or self.make_backbone().offline

    def check_environment(self) -> None:
        """Complain where there is none to act in."""
        check(
            not (self.has_policy and self.from_log),
            f"this run was fitted to logged episodes ({self.env.id}) and has no environment to act in: "
            "`apportion evaluate-offline` judges its policy",
        )

    def make_method(self) -> Method:
        return methods.find(self.method).make(self.method_config)

    def make_backbone(self) -> Backbone:
        check(
            self.has_policy,
            f"this run was fitted to logged episodes ({self.env.id}) and has no policy: "
            "`apportion fit --backbone iql` learns one, too",
        )
        config = self.backbone_config
        if isinstance(config, flashsac.Config) and config.decay_updates is None:
            config = replace(config, decay_updates=self.schedule.updates)
        return backbones.find(self.backbone).make(config)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data with every setting in it, defaults included."""
        return {
            "env": to_dict(self.env),
            "method": {"name": self.method, **to_dict(self.method_config)},
            "backbone": {"name": self.backbone} | (to_dict(self.backbone_config) if self.has_policy else {}),
            "schedule": to_dict(self.schedule),
            "seed": self.seed,
            "lanes": self.lanes,
            "normalise": self.normalise,
        }

    def check_actions(self, spec: Spec) -> None:
        """Complain of a backbone that cannot act in this environment."""
        for_discrete = self.make_backbone().discrete
        if spec.discrete and for_discrete is False:
            raise UserError(f"{spec.env_id} has discrete actions: add --backbone dqn")
        if for_discrete is True and not spec.discrete:
            kinds = f"needs discrete actions, {spec.env_id} has continuous ones"
            raise UserError(f"{self.backbone} {kinds}: add --backbone sac")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Config":
        """What `to_dict` wrote; UserError where it is damaged."""
        # Runs from when policies could learn from imagined steps, too, are still read.
        known = {part: each for part, each in data.items() if part != "imagine"}
        found: dict[str, Any] = dict(vars(from_dict(_Saved, known)))
        for part, find in (("method", methods.find), ("backbone", backbones.find)):
            settings = found[part]
            name = settings.pop("name", None)
            check(isinstance(name, str), f"{part}.name is missing")
            found[part] = name
            if (part, name) != ("backbone", NO_POLICY):
                found[f"{part}_config"] = from_dict(find(name).config, settings, f"{part}.")
        return cls(**found)
