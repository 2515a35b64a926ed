"""What users name as module:name: imported, or one line that says what is missing.

As light as errors.py, since environment workers import it too.
"""

import importlib
import traceback
from typing import Any

from apportion.core.config import check, nearest
from apportion.core.errors import UserError


def import_name(given: str, what: str) -> Any:
    """What stands under module:name; `what` says in complaints what it was given as."""
    module, _, name = given.rpartition(":")
    fix = f"say my_module:{name} in the folder of my_module.py, or put that folder on PYTHONPATH"
    check("/" not in module and not module.endswith(".py"), f"{module!r} is a path, not a module: {fix}")
    found: Any = _import_module(module, f"{what} {given}")
    for part in name.split("."):
        there = part in dir(found)
        check(there, f"{what} {given}: there is no {part!r} in {module}{nearest(part, _public(found))}")
        found = getattr(found, part)
    return found


def _import_module(module: str, whose: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fix = f"install it, or put its folder on PYTHONPATH ({_one_line(error)})"
        raise UserError(f"cannot import the module {module!r} of {whose}: {fix}") from error
    except Exception as error:
        traceback.print_exc()  # its author wants the place
        reason = f"{type(error).__name__}: {_one_line(error)}"
        raise UserError(f"the module {module!r} of {whose} raised {reason}") from error


def _public(found: Any) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
