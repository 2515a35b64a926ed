"""Jobs as tasks of a Ray cluster: each starts the same process as on this machine, on shared storage.

A task whose machine is lost is started again elsewhere, and its run goes on from the newest checkpoint.
"""

import importlib.util
import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from apportion.core.config import UserError, check, one_line
from apportion.front.sweep.folder import SweepFolder
from apportion.front.sweep.process import CORES_PER_JOB, Task, carry, sees

# Read when Ray is imported, unless the user has set them.
_VARIABLES = {
    "RAY_AUTH_MODE": "disabled",  # else it leaves a token in the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what a later version will do
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # no messages about machines that come and go
}


def set_up() -> None:
    """Keep Ray's noise away and import it; complain if that cannot be done."""
    found = importlib.util.find_spec("ray")
    there = found is not None and found.origin is not None  # a folder that happens to be named so has none
    check(there, "--engine ray needs an extra: pip install 'apportion[ray]'")
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        importlib.import_module("ray")
    except ImportError as error:
        said = f"Ray is there, but cannot be imported ({one_line(error)})"
        raise UserError(f"{said}: install it anew") from error


class OnRay:
    """An engine: joins a cluster, or starts one of this machine alone."""

    def __init__(self, folder: SweepFolder, jobs: int, per_gpu: int, address: str | None) -> None:
        import ray

        self.room = jobs
        self._ray = ray
        self._folder = folder
        self._running: dict[Any, Task] = {}
        self._began: dict[str, int] = {}  # size of each log when its job was handed over
        self._own = not ray.is_initialized()
        if self._own:
            self._connect(address or os.environ.get("RAY_ADDRESS") or "local")
        try:
            nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
            check(len(nodes) > 0, "the cluster has no machine with a CPU for tasks")
            folder.stop.unlink(missing_ok=True)  # of a sweep that was killed while it stopped
            self._check_storage(nodes)
            cores, gpus = demand([node["Resources"] for node in nodes], per_gpu)
            # A job may lose its machine so often; each time it goes on from its checkpoint.
            self._carry = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=20)(carry)
        except BaseException:
            self.close()
            raise

    def start(self, task: Task) -> None:
        self._began[task.name] = task.log.stat().st_size if task.log.exists() else 0
        variables = (os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS"))
        self._running[self._carry.remote(task, self._folder.stop, *variables)] = task

    def working(self, name: str) -> bool:
        """Whether some machine has begun with it: it says so in the log."""
        [log] = [task.log for task in self._running.values() if task.name == name]
        return log.exists() and log.stat().st_size > self._began[name]

    def ended(self) -> dict[str, str | None]:
        """Jobs that have ended since, and why those failed that did."""
        from ray.exceptions import RayError

        waiting, problems = list(self._running), {}
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        for reference in ready:
            name = self._running.pop(reference).name
            try:
                problems[name] = self._ray.get(reference)
            except RayError as error:
                problems[name] = f"Ray gave up on it: {_reason(error)}"
        return problems

    def stop(self) -> None:
        """Ask those at work to save and end; those that wait for a machine need not begin."""
        self._folder.stop.touch()
        for reference, task in self._running.items():
            if not self.working(task.name):
                self._ray.cancel(reference)

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._folder.stop.unlink(missing_ok=True)
        if self._own:
            self._ray.shutdown()

    def _connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "/" not in host:
            try:  # of a machine that does not answer Ray itself would try for minutes
                socket.create_connection((host, int(port)), timeout=30).close()
            except OSError as error:
                raise UserError(f"no Ray cluster at {address}: {error.strerror or error}") from error
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if address == "local":
            # The smallest store of objects, in bytes: runs never pass through it.
            quiet |= {"include_dashboard": False, "object_store_memory": 100_000_000}
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"no Ray cluster at {address}: {_reason(error)}") from error

    def _check_storage(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Every machine that may get a job must see the sweep folder under the same path."""
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        token = secrets.token_hex(8)
        probe = self._folder.path / f".probe-{token}"
        probe.write_text(token)
        look = self._ray.remote(num_cpus=0, max_retries=0)(sees)
        try:
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked = look.options(scheduling_strategy=there).remote(probe, token)
                seen = self._ray.get(asked, timeout=120)  # Ray starts a worker first
                where = f"{self._folder.path} of this machine is not there on {node['NodeManagerAddress']}"
                check(seen, f"{where}: choose an --out on storage that all of them share")
        except RayError as error:
            raise UserError(f"the cluster cannot work for a sweep: {_reason(error)}") from error
        finally:
            probe.unlink(missing_ok=True)


def demand(machines: Sequence[Mapping[str, float]], per_gpu: int) -> tuple[int, float]:
    """Cores and share of a GPU that a job asks for: so many that no GPU waits for cores, and that there is a
    machine with so many."""
    with_gpu = [each for each in machines if each.get("GPU")]
    if with_gpu:
        cores = max(each["CPU"] // (each["GPU"] * per_gpu) for each in with_gpu)
    else:
        cores = max(each["CPU"] for each in machines)
    share = (10_000 // per_gpu) / 10_000 if with_gpu else 0.0  # Ray counts in ten-thousandths
    return max(1, min(CORES_PER_JOB, int(cores))), share


def _reason(error: Exception) -> str:
    """In one line; of what went wrong inside a task, the error itself."""
    from ray.exceptions import RayTaskError

    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[0] if lines else type(cause).__name__
