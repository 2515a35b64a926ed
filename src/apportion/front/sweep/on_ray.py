"""Jobs as tasks of a Ray cluster: each starts the same process as on this machine, on shared storage.

A task whose machine is lost is started again elsewhere, and its run goes on from the newest checkpoint.
"""

import importlib.util
import logging
import os
import secrets
from types import TracebackType
from typing import Any, Self

from apportion.core.config import check
from apportion.core.errors import UserError
from apportion.front.sweep.folder import SweepFolder
from apportion.front.sweep.local import CORES_PER_JOB
from apportion.front.sweep.process import Task
from apportion.front.sweep.remote import Errand, carry, sees

RETRIES = 20  # lost machines, for one job; each time it goes on from its checkpoint
SECONDS_TO_ANSWER = 120.0  # for a task that only looks for a file
SMALLEST_STORE = 100_000_000  # bytes of Ray's object store here: runs never pass through it


# Read when Ray is imported, unless the user has set them.
_VARIABLES = {
    "RAY_AUTH_MODE": "disabled",  # else it leaves a token in the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what a later version will do
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # no messages about machines that come and go
}


def set_up() -> None:
    """Before Ray is imported: complain if it is not there, and keep its noise away."""
    there = importlib.util.find_spec("ray") is not None
    check(there, "--engine ray needs an extra: pip install 'apportion[ray]'")
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)


class OnRay:
    """An engine: joins a cluster, or starts one of this machine alone."""

    def __init__(self, folder: SweepFolder, jobs: int, per_gpu: int, address: str | None) -> None:
        self.room = jobs
        self._folder = folder
        self._per_gpu = per_gpu
        self._address = address
        self._running: dict[Any, Task] = {}
        self._began: dict[str, int] = {}  # size of each log when its job was handed over

    def __enter__(self) -> Self:
        import ray

        self._ray = ray
        self._own = not ray.is_initialized()
        if self._own:
            self._connect()
        try:
            self._check_storage()
            self._remote = ray.remote(**self._resources())(carry)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._folder.stop.unlink(missing_ok=True)
        self._leave()

    def start(self, task: Task) -> None:
        self._began[task.name] = task.log.stat().st_size if task.log.exists() else 0
        errand = Errand(task, self._folder.stop, _carried_variables())
        self._running[self._remote.remote(errand)] = task

    def working(self, name: str) -> bool:
        """Whether some machine has begun with it: it says so in the log."""
        [log] = [task.log for task in self._running.values() if task.name == name]
        return log.exists() and log.stat().st_size > self._began[name]

    def ended(self) -> dict[str, str | None]:
        """Jobs that have ended since, and why those failed that did."""
        waiting = list(self._running)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        return {self._running.pop(reference).name: self._problem(reference) for reference in ready}

    def stop(self) -> None:
        """Ask those at work to save and end; those that wait for a machine find the file and never begin."""
        self._folder.stop.touch()

    def _problem(self, reference: Any) -> str | None:
        from ray.exceptions import RayError

        try:
            problem: str | None = self._ray.get(reference)
        except RayError as error:
            return f"Ray gave up on it: {_first_line(error)}"
        return problem

    def _connect(self) -> None:
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if address == "local":
            quiet |= {"include_dashboard": False, "object_store_memory": SMALLEST_STORE}
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"no Ray cluster at {address}: {_first_line(error)}") from error

    def _leave(self) -> None:
        if self._own:
            self._ray.shutdown()

    def _check_storage(self) -> None:
        """Every machine that may get a job must see the sweep folder under the same path."""
        from ray.exceptions import GetTimeoutError, RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._folder.stop.unlink(missing_ok=True)  # of a sweep that was killed while it stopped
        token = secrets.token_hex(8)
        probe = self._folder.path / f".probe-{token}"
        probe.write_text(token)
        look = self._ray.remote(num_cpus=0, max_retries=0)(sees)
        try:
            for node in self._nodes():
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked = look.options(scheduling_strategy=there).remote(probe, token)
                seen = self._ray.get(asked, timeout=SECONDS_TO_ANSWER)
                where = f"{self._folder.path} of this machine is not there on {node['NodeManagerAddress']}"
                check(seen, f"{where}: choose an --out on storage that all of them share")
        except (RayError, GetTimeoutError) as error:
            reason = _first_line(error)
            raise UserError(f"a machine of the cluster cannot work for a sweep: {reason}") from error
        finally:
            probe.unlink(missing_ok=True)

    def _nodes(self) -> list[dict[str, Any]]:
        found = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        check(len(found) > 0, "the cluster has no machine with a CPU for tasks")
        return found

    def _resources(self) -> dict[str, Any]:
        """What a job asks for: a share of a GPU where there are any, and cores that some machine has."""
        nodes = [node["Resources"] for node in self._nodes()]
        most = max(int(each["CPU"]) for each in nodes)
        gpus = any(each.get("GPU") for each in nodes)
        wanted = {"num_cpus": max(1, min(CORES_PER_JOB, most)), "max_retries": RETRIES}
        return {**wanted, "num_gpus": 1 / self._per_gpu if gpus else 0}


def _carried_variables() -> dict[str, str | None]:
    """What a job finds here and would find otherwise there: Ray sets the number of threads for its workers,
    which changes the last digits of sums; modules of one's own lie on the path."""
    return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "PYTHONPATH")}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
