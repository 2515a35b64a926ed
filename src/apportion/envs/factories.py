"""Environments made by a function instead of an id: any callable without arguments that returns a new one.

A function that others can import is written down as module:name, so that workers, later commands and other
machines find it. Any other (a lambda, a closure, one of the running script) is known to this process only.
"""

import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from apportion.core.config import UserError, check

AnyEnv = gymnasium.Env[Any, Any]
Factory = Callable[..., AnyEnv]

_SCRIPT = "<script>:"  # no module can have that name
_HERE: dict[str, Factory] = {}
_LAST_MADE: dict[str, "weakref.ref[AnyEnv]"] = {}


def name_factory(factory: Factory) -> str:
    """The id under which `make` finds this factory again."""
    fix = "give the function or class that makes it"
    given = isinstance(factory, gymnasium.Env)
    check(not given, f"an environment was given, but each lane needs its own: {fix}")
    check(callable(factory), f"{factory!r} is no environment: give an id, or a function that makes one")
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if module and name and module != "__main__" and _imported(module, name) is factory:
        return f"{module}:{name}"
    short = (name or type(factory).__name__).rpartition("<locals>.")[2]
    env_id, number = f"{_SCRIPT}{short}", 1
    while _HERE.get(env_id, factory) is not factory:
        number += 1
        env_id = f"{_SCRIPT}{short} {number}"
    _HERE[env_id] = factory
    return env_id


def only_here(env_id: str) -> bool:
    """Whether the environment comes from a function that no other process can find."""
    return env_id.startswith(_SCRIPT)


def find_factory(env_id: str) -> Factory | None:
    """The function of this id; None where there is none, so that it must be one of Gymnasium's."""
    if only_here(env_id):
        made = f"the environment of this run was made by {env_id.removeprefix(_SCRIPT)} of a script"
        fix = "give it again from Python, as in apportion.load(run, env=make_env)"
        check(env_id in _HERE, f"{made}: {fix}")
        return _HERE[env_id]
    module, _, name = env_id.rpartition(":")
    found = _imported(module, name) if module and name not in gymnasium.registry else None
    return found if callable(found) else None


def call_factory(
    env_id: str, factory: Factory, arguments: dict[str, Any], max_episode_steps: int | None
) -> AnyEnv:
    """A new environment, with a time limit where one is asked for.

    Functions get no arguments of a user's choice: names come from run folders too, and a stranger's must not
    be able to say `subprocess:run`. An environment's class may have them, as registered ones do.
    """
    is_class = isinstance(factory, type) and issubclass(factory, gymnasium.Env)
    if not is_class and arguments.keys() - {"render_mode"}:
        raise UserError(f"{env_id} is a function and takes no --env.kwargs: name the environment's class")
    if "render_mode" in arguments and "render_mode" not in inspect.signature(factory).parameters:
        raise UserError(f"{env_id} cannot be filmed: let it take an argument render_mode and pass it on")
    _check_arguments(env_id, factory, arguments, is_class)
    env = factory(**arguments)
    good, kind = isinstance(env, gymnasium.Env), type(env).__name__
    check(good, f"{env_id} made no environment but a {kind}: let it return one of Gymnasium's")
    last = _LAST_MADE.get(env_id)
    new = last is None or last() is not env
    check(new, f"{env_id} returned the same environment twice: let it make a new one at each call")
    _LAST_MADE[env_id] = weakref.ref(env)
    return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)


def _check_arguments(env_id: str, factory: Factory, arguments: dict[str, Any], is_class: bool) -> None:
    """Before it is called: a mistake inside it is another matter."""
    try:
        inspect.signature(factory).bind(**arguments)
    except ValueError:  # written in C, and it does not say what it takes
        return
    except TypeError as error:
        if not is_class:
            fix = "name one without, or the environment's class"
            raise UserError(f"{env_id} is a function that needs arguments ({error}): {fix}") from error
        fix = "give those that its constructor has with --env.kwargs, as in '{\"noise\": 0.1}'"
        raise UserError(f"{env_id} cannot be made: {error}; {fix}") from error


def _imported(module: str, name: str) -> Any:
    """What stands under a dotted name in a module that has been imported, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
