"""From a config to an environment that learners can trust, and the facts about it (Spec).

Whatever comes in, this goes out: float32 vectors, actions in [-1, 1] (discrete ones as one-hot vectors), a
time limit, delayed reward.
An environment may declare `observation_names`, `action_names`, `true_graph` and, where it truncates its own
episodes, `max_episode_steps`; none is required.
"""

import difflib
import importlib
import math
import re
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import RescaleAction

from apportion.core.config import UserError, check, nearest, parse_json
from apportion.core.registry import in_this_folder
from apportion.core.spec import Spec
from apportion.envs.delayed import DelayedReward, Every, max_segment_steps
from apportion.envs.factories import AnyEnv as AnyEnv
from apportion.envs.factories import call_factory, find_factory, only_here
from apportion.envs.mujoco import TASKS, MujocoTask, PadObservation, ZeroObservation
from apportion.envs.spaces import (
    action_facts,
    check_action_space,
    check_graph,
    check_names,
    check_observation_space,
    documented,
    flattened_names,
)

_EXTRAS = {"Meta-World": "metaworld"}  # namespace of ids: what registers them, as module and as our extra

TimeUp = Literal["auto", "end", "pause"]


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how its reward is delayed."""

    id: str
    """Gymnasium id, module:id for one that this module registers when imported, or module:function."""
    delay: str = "episode"
    """When reward is paid: episode (its end), none (every step), 20 (every 20 steps), 10-30 (at random)."""
    max_episode_steps: int | None = None
    """Time limit; by default the environment's own."""
    time_up: TimeUp = "auto"
    """What the time limit means to a policy: the end, a pause (values look beyond it), or auto: the end where
    an observation tells the time, a pause where none does."""
    kwargs: str = "{}"
    """Constructor arguments, as a JSON object."""
    paper: bool = True
    """Set the paper's MuJoCo tasks up as the paper did: 1000 steps, its padding and its dead dimensions."""
    timeout: float = 120.0
    """Seconds without a sign of life after which a step or a reset counts as failed."""
    restarts: int = 10
    """How often a seed's environment is restarted after a failure, before that seed is frozen."""

    def __post_init__(self) -> None:
        parse_delay(self.delay)
        _parse_kwargs(self.kwargs)
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise UserError(f"--env.max-episode-steps {self.max_episode_steps} must be at least 1")
        if not 0 < self.timeout < math.inf:
            raise UserError(f"--env.timeout {self.timeout} must be a number of seconds above 0")
        if self.restarts < 0:
            raise UserError(f"--env.restarts {self.restarts} must not be negative")

    @property
    def task(self) -> MujocoTask | None:
        """The paper's task of this id, if it is one."""
        return TASKS.get(_split_id(self.id)[1])

    @property
    def zero_from(self) -> int | None:
        """The dimension from which on the paper's set-up overwrites what is observed with zeros."""
        return self.task.zero_from if self.paper and self.task else None


def parse_delay(delay: str) -> Every:
    """The text of --env.delay as DelayedReward's `every`."""
    if delay == "episode":
        return None
    if delay == "none":
        return 1
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", delay)
    shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= shortest <= longest:
        raise UserError(
            f"--env.delay {delay!r} is no delay: use episode (pay at its end), none (pay every step), "
            "20 (every 20 steps), or 10-30 (after 10 to 30 steps, at random)"
        )
    return shortest if shortest == longest else (shortest, longest)


def make(config: EnvConfig, render_mode: str | None = None) -> tuple[AnyEnv, Spec]:
    """Build the environment and say what is known about it."""
    env = _build(config, render_mode)
    check_observation_space(config.id, env.observation_space)
    check_action_space(config.id, env.action_space)
    own_actions, own_size = env.action_space, _size(env.observation_space)
    max_episode_steps = _known_limit(config, env)
    task_names, task_actions = _task_observation_names(config, env), _task_action_names(config, env)
    env = _paper_observation(config, _canonical(env))
    every = parse_delay(config.delay)
    env = DelayedReward(env, every)
    observation_names = _names(
        config.id, env, "observation_names", _size(env.observation_space), task_names, "s"
    )
    action_names = _names(config.id, env, "action_names", _size(env.action_space), task_actions, "a")
    true_graph = _declared(env, "true_graph")
    check_graph(config.id, true_graph, len(observation_names), len(action_names))
    spec = Spec(
        env_id=config.id,
        observation_names=observation_names,
        action_names=action_names,
        max_episode_steps=max_episode_steps,
        max_segment_steps=max_segment_steps(every, max_episode_steps),
        true_graph=true_graph,
        padded=len(observation_names) - own_size,
        **action_facts(own_actions),
    )
    return env, spec


def list_environments() -> list[tuple[str, str]]:
    """Ids that work out of the box, each with a line on what it is."""
    return [
        ("apportion/Greenhouse-v0", "who grew the tomatoes? ten gauges, three levers; known graph"),
        ("apportion/KeyDoor-v0", "a key taken early opens a door late; nothing shows who has it"),
        ("apportion/KeyDoorLottery-v0", "the same beside a lottery that only the whole episode explains"),
        ("apportion/Factored-v0", "synthetic tasks drawn at random; known graph"),
        ("CartPole-v1", "keep a pole upright by pushing its cart left or right; discrete actions"),
        *((env_id, f"{task.summary} (MuJoCo)") for env_id, task in TASKS.items()),
    ]


# --- Building


def _build(config: EnvConfig, render_mode: str | None) -> AnyEnv:
    """gymnasium.make or a factory, with every failure that the user can mend turned into one line."""
    if _split_id(config.id)[0]:
        with in_this_folder():
            return _build_named(config, render_mode)
    return _build_named(config, render_mode)


def _build_named(config: EnvConfig, render_mode: str | None) -> AnyEnv:
    name = config.id if only_here(config.id) else _import_module(config.id)
    factory = find_factory(config.id)
    _check_version(name)
    name, arguments = by_task(name, _parse_kwargs(config.kwargs))
    if render_mode is not None:
        arguments["render_mode"] = render_mode
    try:
        if factory is not None:
            return call_factory(config.id, factory, arguments, config.max_episode_steps)
        with warnings.catch_warnings():
            # The paper's tasks are v4 on purpose; Gymnasium would advise v5 at every start.
            warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)
            env = gymnasium.make(
                name, max_episode_steps=_wanted_limit(config), disable_env_checker=True, **arguments
            )
            return SeededTasks(env) if name.startswith(PREFIX) else env
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UserError(f"{config.id} needs a package that is missing: {_one_line(error)}") from error
    except TypeError as error:
        cause = error.__cause__ or error
        if not arguments and cause.__traceback__ and cause.__traceback__.tb_next:
            raise  # nothing was asked of the constructor: the mistake is inside it
        reason = _one_line(cause)
        raise UserError(f"{config.id} does not accept --env.kwargs '{config.kwargs}': {reason}") from error
    except gymnasium.error.Error as error:
        if name not in gymnasium.registry:
            raise UserError(_unknown_id(config.id)) from error
        raise UserError(f"{config.id} cannot be made: {_one_line(error)}") from error


def _wanted_limit(config: EnvConfig) -> int | None:
    if config.max_episode_steps is None and config.paper and config.task:
        return config.task.max_episode_steps
    return config.max_episode_steps


def _split_id(env_id: str) -> tuple[str, str]:
    module, _, name = env_id.rpartition(":")
    return module, name


def _import_module(env_id: str) -> str:
    """Import what registers the environment; returns the id without its module."""
    module, name = _split_id(env_id)
    extra = _EXTRAS.get(name.split("/")[0])
    if not (module or extra):
        return name
    if "/" in module or module.endswith(".py"):
        fix = f"say my_module:{name} in the folder of my_module.py, or put that folder on PYTHONPATH"
        raise UserError(f"{module!r} is a path, not a module: {fix}")
    try:
        if module:
            with in_this_folder():
                importlib.import_module(module)
        else:
            importlib.import_module(str(extra))
    except ImportError as error:
        if module:
            fix = f"install it, or put its folder on PYTHONPATH ({_one_line(error)})"
            raise UserError(f"cannot import the module {module!r} of {env_id}: {fix}") from error
        raise UserError(f"{env_id} needs an extra: pip install 'apportion[{extra}]'") from error
    return name


def _check_version(name: str) -> None:
    """Send those who type the paper's own ids (v2) to the version that still runs."""
    successor = re.sub(r"-v[123]$", "-v4", name)
    if successor != name and successor in TASKS:
        raise UserError(f"{name} needs MuJoCo's old bindings: use {successor}, its closest successor")


def _parse_kwargs(text: str) -> dict[str, Any]:
    try:
        arguments = parse_json(text)
    except ValueError as error:
        raise UserError(
            f"--env.kwargs '{text}' is not JSON ({error}): write it like '{{\"noise\": 0.1}}'"
        ) from error
    if not isinstance(arguments, dict):
        raise UserError(f"--env.kwargs '{text}' is not a JSON object: write it like '{{\"noise\": 0.1}}'")
    return arguments


def _unknown_id(env_id: str) -> str:
    module, name = _split_id(env_id)
    # Compared without case, namespace and version: people misremember these first.
    known = {_bare(env_id): env_id for env_id in gymnasium.registry}
    known |= {_bare(env_id): env_id for env_id, _ in list_environments()}
    nearest = difflib.get_close_matches(_bare(name), known, n=1, cutoff=0.5)
    guess = f"did you mean {known[nearest[0]]}? If not, " if nearest else ""
    if module:
        fix = f"make {module} register it when it is imported, or name a function or class in it"
        return f"unknown environment {name!r}: {guess}{fix}"
    return f"unknown environment {name!r}: {guess}name the module that registers it, as in my_module:{name}"


def _bare(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id.split("/")[-1]).lower()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


# --- Wrappers


class Float32Observation(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Cast observations, always into a new array: some environments write each one into the same buffer.

    Gymnasium's DtypeObservation refuses bounds beyond float32, and warns at other ones.
    """

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        with np.errstate(over="ignore"):  # a bound beyond float32 is no bound
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return np.array(observation, np.float32)


def _canonical(env: AnyEnv) -> AnyEnv:
    """Actions in [-1, 1] or one-hot, observations in float32."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return Float32Observation(OneHotAction(env))
    assert isinstance(space, spaces.Box)
    if not ((space.low == -1).all() and (space.high == 1).all()):
        ones = np.ones_like(space.low)
        env = RescaleAction(env, -ones, ones)
    return Float32Observation(env)


def _paper_observation(config: EnvConfig, env: AnyEnv) -> AnyEnv:
    task = config.task if config.paper else None
    if task and task.pad_to is not None:
        env = PadObservation(env, task.pad_to)
    if config.zero_from is not None:
        env = ZeroObservation(env, config.zero_from)
    return env


# --- Facts


def _size(space: spaces.Space[Any]) -> int:
    assert space.shape
    return space.shape[0]


def _declared(env: AnyEnv, attribute: str) -> Any:
    """What the environment says about itself under this name, or None."""
    return env.get_wrapper_attr(attribute) if env.has_wrapper_attr(attribute) else None


def time_limit(env: AnyEnv) -> int | None:
    """After how many steps its episodes end at the latest, where anybody says so."""
    limits = (
        env.spec.max_episode_steps if env.spec else None,
        _declared(env, "max_episode_steps"),
        _declared(env, "_max_episode_steps"),  # of Gymnasium's TimeLimit, around what has no spec
    )
    known = [int(limit) for limit in limits if limit is not None]
    return min(known, default=None)


def _known_limit(config: EnvConfig, env: AnyEnv) -> int:
    limit = time_limit(env)
    if limit is None:
        raise UserError(f"{config.id} has no time limit: set one, such as --env.max-episode-steps 1000")
    return limit


def _task_observation_names(config: EnvConfig, env: AnyEnv) -> tuple[str, ...] | None:
    """The table's, where constructor arguments have not changed what is seen; or those of flattened parts."""
    size = _size(env.observation_space)
    names = documented(_split_id(config.id)[1])
    if names is not None and len(names.observation) == size:
        return names.observation
    if config.task is None or len(config.task.observation_names) != size:
        return flattened_names(env)
    padding = (config.task.pad_to or size) - size if config.paper else 0
    return config.task.observation_names + tuple(f"padding {index}" for index in range(padding))


def _task_action_names(config: EnvConfig, env: AnyEnv) -> tuple[str, ...] | None:
    if config.task is not None:
        return config.task.action_names
    names = documented(_split_id(config.id)[1])
    size = env.action_space.n if isinstance(env.action_space, spaces.Discrete) else _size(env.action_space)
    return names.action if names is not None and len(names.action) == size else None


def _names(
    env_id: str, env: AnyEnv, attribute: str, size: int, known: tuple[str, ...] | None, letter: str
) -> tuple[str, ...]:
    declared = _declared(env, attribute)
    if declared is None:
        return known or tuple(f"{letter}{index}" for index in range(size))
    check_names(env_id, attribute, declared, size)
    return tuple(str(name) for name in declared)


# --- Discrete actions


class OneHotAction(gymnasium.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """The largest entry of a vector is the action. A policy that gives zeros only takes the first one."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, spaces.Discrete)
        self.first = int(space.start)
        self.action_space = spaces.Box(0.0, 1.0, (int(space.n),), np.float32)

    def action(self, action: Any) -> int:
        return self.first + int(np.argmax(action))


# --- MetaWorld


PREFIX = "Meta-World/"
_SINGLE = "Meta-World/MT1"  # one task, with 50 places for its goal and its objects


def by_task(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What Gymnasium makes of Meta-World/TASK, and the constructor's arguments; other names as they are.

    The 50 places come from a seed. Without one they would be others in every process."""
    if not name.startswith(PREFIX) or name in gymnasium.registry:
        return name, arguments
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    task = name.removeprefix(PREFIX)
    check(task in ALL_V3_ENVIRONMENTS, f"MetaWorld has no task {task!r}{nearest(task, ALL_V3_ENVIRONMENTS)}")
    return _SINGLE, {"env_name": task, "seed": 0, **arguments}


class SeededTasks(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """MetaWorld draws the next place before it takes the seed: the same seed led elsewhere every time."""

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            inner: Any = self.unwrapped
            inner.seed(seed)
        return super().reset(seed=seed, options=options)
