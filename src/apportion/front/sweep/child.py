"""One job in a process of its own: `apportion train`, or `apportion resume` where there is a checkpoint."""

import runpy
import shutil
import sys
import time
from pathlib import Path

from apportion.core.children import die_with_parent
from apportion.core.errors import UserError

PATIENCE = 60.0  # seconds for an earlier process of the same job to be gone, on a machine that was lost


def command(run: Path, train: list[str]) -> list[str]:
    """The words after `apportion`. A run that was killed before its first checkpoint begins anew."""
    from apportion.front.sweep.standing import has_checkpoint

    if not run.exists():
        return train
    free = _is_free(run)
    if has_checkpoint(run):
        return ["resume", str(run)]
    if free:
        shutil.rmtree(run)
    return train


def _is_free(run: Path) -> bool:
    """Whether nobody writes the run, now or soon."""
    from apportion.runs.folder import RunFolder

    end = time.monotonic() + PATIENCE
    while True:
        try:
            with RunFolder(run).lock():
                return True
        except UserError:
            if time.monotonic() > end:
                return False
        time.sleep(0.2)


def main(parent: str, run: str, *train: str) -> None:
    die_with_parent(int(parent))
    sys.argv = ["apportion", *command(Path(run), list(train))]
    runpy.run_module("apportion", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
