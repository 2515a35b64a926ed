"""Jobs as processes of this machine, each with its share of the GPUs."""

import os
import subprocess
from types import TracebackType
from typing import Self

from apportion.front.sweep.process import Child, Task

CORES_PER_JOB = 4  # that one training keeps busy where it computes on them


class Local:
    """An engine: starts processes, and ends those that are left when it is closed."""

    def __init__(self, jobs: int | None, per_gpu: int) -> None:
        self._free = places(_gpus(), os.cpu_count() or 1, jobs, per_gpu)
        self.room = len(self._free)
        self._running: dict[str, tuple[Child, str | None]] = {}

    def start(self, task: Task) -> None:
        place = self._free.pop(0)
        # Several processes may share a card, so none may take all of its memory at once.
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        if place is not None:
            variables["CUDA_VISIBLE_DEVICES"] = place
        self._running[task.name] = (Child(task, variables), place)

    def working(self, name: str) -> bool:
        return True

    def ended(self) -> dict[str, str | None]:
        """Jobs that have ended since, and why those failed that did."""
        gone = [name for name, (child, _) in self._running.items() if child.ended()]
        problems = {}
        for name in gone:
            child, place = self._running.pop(name)
            self._free.append(place)
            problems[name] = child.problem()
        return problems

    def stop(self) -> None:
        for child, _ in self._running.values():
            child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child, _ in self._running.values():
            child.kill()


def places(gpus: list[str], cores: int, jobs: int | None, per_gpu: int) -> list[str | None]:
    """For each job that may run at a time, the GPUs that it sees; None where there are none.

    More jobs than GPUs take turns on them, fewer get several each: a training splits its seeds over those.
    """
    count = jobs or (len(gpus) * per_gpu if gpus else max(1, cores // CORES_PER_JOB))
    if not gpus:
        return [None] * count
    shares = [gpus[first::count] for first in range(min(count, len(gpus)))]
    return [",".join(shares[job % len(shares)]) for job in range(count)]


def _gpus() -> list[str]:
    """Those that a training would find here. JAX is not asked: it would keep them for this process."""
    wanted = os.environ.get("JAX_PLATFORMS") or "cuda"
    if wanted.split(",")[0] not in ("cuda", "gpu"):
        return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    question = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.split()
