"""Call a function in a process of its own, where it waits for no other thread's turn at the interpreter.

What goes there and comes back lies in memory that only the two processes share, and is pickled as
`multiprocessing` does it: arrays are written as they are.
"""

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from apportion.core import children
from apportion.core.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")


def apart(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function of some module gives or raises. The module is imported there: it should be light."""
    with os.fdopen(children.memory_file("apart"), "w+b") as file:
        pickle.dump((function, arguments, named), file, protocol=5)
        file.flush()
        child = children.start("apportion.core.apart", [file.fileno()], subprocess.DEVNULL)
        code = child.wait()
        if code != 0:
            raise UserError(
                f"the process of {function.__name__} died (exit code {code}); its output is above. "
                "Without any, memory was probably too short: train fewer lanes at once"
            )
        file.seek(0)
        result, error = pickle.load(file)
    if error is not None:
        raise error
    return cast(T, result)


def main() -> None:
    parent, descriptor = map(int, sys.argv[1:])
    children.serve(parent)
    with os.fdopen(descriptor, "r+b") as file:
        file.seek(0)
        function, arguments, named = pickle.load(file)
        file.seek(0)
        file.truncate()  # the memory is needed from here on
        result, failure = None, None
        try:
            result = function(*arguments, **named)
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))  # which would not come back with it
            failure = error
        pickle.dump((result, failure), file, protocol=5)


if __name__ == "__main__":
    main()
