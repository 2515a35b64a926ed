"""The `apportion` command: joins everything, and has no logic of its own.

Exit codes: 0 done, 1 it went wrong, 2 the command line is wrong, 128+n stopped by signal n and saved.
"""

import os
import sys

from apportion.config import nearest
from apportion.errors import UserError

VERBS = {
    "train": "train on an environment, into a run folder",
    "resume": "continue a run from its newest checkpoint",
    "eval": "play fresh episodes with a run's policies",
    "show": "say in a few numbers how a run went",
    "identify": "find who feeds the reward in logged episodes",
    "list": "list methods, backbones or environments",
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `apportion` command."""
    words = sys.argv[1:] if argv is None else argv
    if "" not in sys.path:
        sys.path.insert(0, "")  # as with `python -m`: module:Id finds modules in the current folder
    try:
        sys.exit(_run(words))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if error.usage else 1)
    except BrokenPipeError:
        # The reader of our output left, as `head` does; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # while starting, or the second one
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)


def _run(words: list[str]) -> int:
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
    from apportion.cli import verbs  # here, so that help and typing errors need not wait for JAX

    run = {
        "train": verbs.train,
        "resume": verbs.resume,
        "eval": verbs.evaluate,
        "show": verbs.show,
        "identify": verbs.identify_graph,
        "list": verbs.list_things,
    }
    return run[verb](rest)


def _help() -> str:
    lines = [f"  {verb:<9} {line}" for verb, line in VERBS.items()]
    return "\n".join(
        [
            "apportion: who earned the reward? Learn dense rewards from late ones, and policies from them.",
            "",
            "usage: apportion VERB ...        `apportion VERB --help` explains one",
            "",
            *lines,
            "",
            "Try it: apportion train apportion/Greenhouse-v0 --seeds 3",
        ]
    )
