"""The front door: `apportion.sweep`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from apportion.core.config import check
from apportion.core.errors import UserError
from apportion.front.run import Run
from apportion.front.sweep.carrying import How, carry_out
from apportion.front.sweep.planning import default_folder, plan, read_plan


def sweep(
    what: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    per_gpu: int = 1,
    address: str | None = None,
    quiet: bool = False,
) -> list[Run]:
    """Train all that a sweep file asks for, or go on with it, and give the runs in the order of its jobs.

    `what` is the file, or a mapping of the same form: {"sweep": {"tasks": [...], ...}, "set": {...}}, which
    needs `out`. The other arguments are flags of `apportion sweep`. UserError names the jobs that failed,
    when the others are done; Ctrl-C lets those at work save and end, and the same call goes on.
    """
    if isinstance(what, Mapping):
        check(out is not None, "where should the runs of this sweep go? Give out")
        planned, default = plan(what), Path()
    else:
        planned, default = read_plan(Path(what)), default_folder(what)
    folder = default if out is None else Path(out)
    carried = carry_out(planned, folder, How(engine, jobs, per_gpu, address), quiet)
    if carried.signal is not None:
        raise KeyboardInterrupt("the sweep was stopped, and saved: the same call goes on")
    if carried.failed:
        reasons = "; ".join(f"{each.job.name} failed: {each.reason}" for each in carried.failed)
        raise UserError(reasons)
    return [Run.open(each.run) for each in carried.standings]
