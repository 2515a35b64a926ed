"""The `apportion` command: joins everything, and has no logic of its own.

Exit codes: 0 done, 1 it went wrong, 2 the command line is wrong, 128+n stopped by signal n and saved.
"""

import codecs
import dataclasses
import importlib
import io
import os
import sys
from typing import Any, NoReturn, cast

from apportion.core.config import UserError, check, nearest
from apportion.core.registry import FOLDER
from apportion.core.terminal import say

# A line for `apportion help`, and where (module.name) in this package stands what takes the command line: a
# dataclass of flags, which is called to do what it says, or a function.
VERBS = {
    "train": ("train on an environment, into a run folder", "verbs.train"),
    "sweep": ("train all that a file asks for: tasks, methods, settings", "sweep.Sweep"),
    "resume": ("continue a run from its newest checkpoint", "verbs.Resume"),
    "eval": ("play fresh episodes with a run's policies", "verbs.Eval"),
    "show": ("say in a few numbers how a run went", "verbs.Show"),
    "report": ("make one HTML page about one run or several", "compare.Report"),
    "compare": ("compare runs: scores with intervals, per task and over all", "compare.Compare"),
    "explain": ("say what a run's agents are paid for", "verbs.Explain"),
    "export": ("write a policy into a file that NumPy alone can run", "verbs.Export"),
    "identify": ("find who feeds the reward in logged episodes", "logged.Identify"),
    "fit": ("learn from logged episodes which steps earned their outcomes", "logged.fit"),
    "evaluate-offline": ("say what a policy is worth by logged episodes", "logged.EvaluateOffline"),
    "relabel": ("write logged episodes again, with the reward of each step", "logged.Relabel"),
    "credit": ("say what each kind of step earned, such as each channel", "logged.Credit"),
    "refute": ("try whether credit stands where outcomes, columns or episodes change", "logged.Refute"),
    "paper": ("run an experiment of the GRD paper, and set it beside what it prints", "sweep.Paper"),
    "list": ("list methods, backbones or environments", "verbs.List"),
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `apportion` command."""
    words = sys.argv[1:] if argv is None else argv
    os.environ[FOLDER] = os.getcwd()  # for modules that somebody names
    _print_anything()
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a reader who left is noticed while somebody can deal with it
        sys.exit(code)
    except UserError as error:
        say(f"error: {error}")
        sys.exit(2 if error.usage else 1)
    except BrokenPipeError:
        # The reader of our output left, as `head` does; Python would complain once more while closing stdout.
        # What there was to do is done: a training ends before its summary is printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if _while_interrupted(error):
            _interrupted()
        where = f": {error.filename}" if error.filename else ""
        say(f"error: {error.strerror or error}{where}")
        sys.exit(1)
    except KeyboardInterrupt:  # while starting, or the second one
        _interrupted()


def _print_anything() -> None:
    """Signs that an encoding does not have become question marks, as stderr has an answer to them, too."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        sys.stdout.reconfigure(errors="backslashreplace" if unicode else "replace")


def _interrupted() -> NoReturn:
    print("error: interrupted", file=sys.stderr)
    sys.exit(130)


def _while_interrupted(error: BaseException | None) -> bool:
    """Whether an error came up in what had to be closed after Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _run(words: list[str]) -> int:
    check("\0" not in "".join(words), "a word with a null character was given: no file has such a name")
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        from apportion import __version__

        print(f"apportion {__version__}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise UserError(f"unknown verb {verb!r}{nearest(verb, VERBS)}", usage=True)
    # Imported only now, so that help and typing errors need not wait for JAX.
    from apportion.cli.arguments import look, parse, usage_errors

    if verb in ("identify", "fit"):
        look(rest)
    from apportion.cli.display import remember_compilations

    remember_compilations()
    _, place = VERBS[verb]
    module, _, name = place.partition(".")
    found = getattr(importlib.import_module(f"apportion.cli.{module}"), name)
    if not dataclasses.is_dataclass(found):
        return int(found(rest))
    with usage_errors():
        flags: Any = parse(cast(type[Any], found), rest, f"apportion {verb}")
    return int(flags())


def _help() -> str:
    lines = "\n".join(f"  {name:<16} {line}" for name, (line, _) in VERBS.items())
    return f"""apportion: who earned the reward? Learn dense rewards from late ones, and policies from them.

usage: apportion VERB ...        `apportion VERB --help` explains one

{lines}

Try it: apportion train apportion/Greenhouse-v0 --seeds 3"""
