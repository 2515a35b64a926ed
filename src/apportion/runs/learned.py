"""What the lanes of a run have learned: their agents in the newest checkpoint, or each at its best."""

import contextlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apportion.core.categories import expanded
from apportion.core.config import UserError, check
from apportion.core.spec import Spec
from apportion.core.types import Method, State
from apportion.envs.wire import Arrays
from apportion.runs import saved as saving
from apportion.runs.atomic import read_json
from apportion.runs.folder import RunFolder, on_age
from apportion.runs.settings import as_data, changes, read_settings
from apportion.training import agent as agents
from apportion.training.agent import AgentState
from apportion.training.outcomes import Outcomes
from apportion.training.settings import Config

_REMEMBERED = 4  # agents of so many folders: a checkpoint with its replay takes long to read


@dataclass(frozen=True, eq=False)
class Learned:
    """The agents of all lanes, and what they were trained with."""

    config: Config
    spec: Spec  # as learners know it
    agent: AgentState  # [L, ...]
    step: int | None  # of the checkpoint; None where each lane has its own
    best_steps: list[int] | None  # [L] where these are the best agents
    skipped: list[str]  # a line for each newer checkpoint that could not be used, or is gone
    outcomes: Outcomes  # in which a fit to logged episodes was paid

    @cached_property
    def actors(self) -> Arrays:
        """[L, ...] what `envs.acting` acts with."""
        method, backbone = self.config.make_method(), self.config.make_backbone()
        states = self.spec.observation_size
        actors = jax.jit(jax.vmap(lambda agent: agents.actor(method, backbone, agent, states)))(self.agent)
        found = {name: np.asarray(array) for name, array in actors.items()}
        # Who acted in a log may have looked at anything: a policy that learned from it sees all.
        return found | ({"mask": np.ones_like(found["mask"])} if self.config.from_log else {})

    @property
    def method(self) -> Method:
        """As a function of `models`, in the environment's own units."""
        return self.outcomes.in_outcome_units(agents.in_own_units(self.config.make_method()))

    @property
    def models(self) -> State:
        """[L, ...] what the lanes' methods know."""
        return self.agent._replace(backbone=None)

    @cached_property
    def sound(self) -> list[int]:
        """Lanes whose numbers have stayed finite; UserError where there is none."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.models)]
        numbers = [leaf for leaf in leaves if leaf.dtype.kind == "f"]
        finite = [all(np.isfinite(leaf[lane]).all() for leaf in numbers) for lane in range(self.config.lanes)]
        check(any(finite), "what was learned is not finite in any seed: fit again, with other settings")
        return np.flatnonzero(finite).tolist()

    def left_out(self) -> list[str]:
        """A sentence for each lane that is not sound."""
        others = [self.config.seed + lane for lane in range(self.config.lanes) if lane not in self.sound]
        return [f"seed {seed} has no finite reward and is left out" for seed in others]

    def model(self, lane: int) -> State:
        """What one lane's method knows."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[lane]), self.models)

    def moment(self) -> dict[str, Any]:
        """When that was, for JSON."""
        return {"step": self.step, "best_steps": self.best_steps}


def read_learned(run: RunFolder, best: bool = False) -> Learned:
    """From the newest checkpoint that can be read, or from the best agents that it knew of.

    Asked again, it is read again only if a file has changed.
    """
    return _read(run, best, _state_of_files(run))


@lru_cache(maxsize=_REMEMBERED)
def _read(run: RunFolder, best: bool, files: tuple[Any, ...]) -> Learned:
    config, checkpoints = read_settings(run)
    spec = expanded(run.read_spec())
    changes(run, saving.settings(run.checkpoints), as_data(config, checkpoints))
    moments = saving.best_moments(run.checkpoints, config.lanes) if best else []
    if moments is None:
        raise UserError(
            f"{run.path} has kept no best policy (it was not evaluated and saved yet): take the newest one "
            "instead, without --best or best=True"
        )
    agent, loaded = saving.read_agent(run.checkpoints, config, spec, best)
    notes = loaded.skipped or on_age(run, loaded.step)
    step, steps = (None, list(loaded.meta["best"]["steps"])) if best else (loaded.step, None)
    return Learned(config, spec, agent, step, steps, notes, _outcomes(run))


def _outcomes(run: RunFolder) -> Outcomes:
    """As they were where the run was fitted to a log."""
    return Outcomes(**read_json(run.data)["outcomes"]) if run.data.is_file() else Outcomes()


def _state_of_files(run: RunFolder) -> tuple[Any, ...]:
    """What changes when a file is written that agents are read from."""
    found = []
    for path in (run.config, run.spec, *run.checkpoints.glob("step_*")):
        with contextlib.suppress(FileNotFoundError):  # a training is just replacing it
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(sorted(found))


def moment_in_words(data: dict[str, Any]) -> str:
    """Of which moment of training some JSON tells."""
    return "at each seed's best step" if data["step"] is None else f"at step {data['step']:,}"


def check_lane(lane: int, lanes: int, run: RunFolder) -> None:
    """Complain of a lane that the run does not have."""
    check(0 <= lane < lanes, f"no lane {lane}: {run.path} has lanes 0 to {lanes - 1}")
