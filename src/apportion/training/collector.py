"""Steps beside the updates: workers act with one moment's policy while the lanes learn from earlier steps."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from apportion.data.replay import Chunk
from apportion.envs.wire import Arrays
from apportion.envs.workers import Pool
from apportion.training import devices
from apportion.training.settings import Schedule


class _Collected(NamedTuple):
    """What all lanes' environments did in one iteration."""

    arrays: Arrays  # of the chunk, on the host
    chunk: Chunk  # [L, ...] on the devices


class Collector:
    """Keeps one chunk of steps ahead, brought by a thread of its own.

    Whoever launches updates, which on a GPU may take as long as they last, therefore waits neither for the
    actor nor for the environments.
    """

    def __init__(self, pool: Pool, schedule: Schedule) -> None:
        self.pool = pool
        self.schedule = schedule
        self.segments = np.zeros(pool.lanes, np.int64)  # closed so far, per lane
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Callable[[], _Collected]  # waits for the chunk ahead

    def begin(self, actor: dict[str, Array], iteration: int) -> None:
        """Let the environments act as soon as the actor is there; in this process, when somebody waits."""
        bring = partial(self._bring, actor, iteration)
        self._under_way = self._thread.submit(bring).result if self.pool.has_spare_workers else cache(bring)

    def go_on_from(self, pending: Arrays, segments: Any) -> None:
        """Start from a chunk that was collected before, after so many closed segments of each lane."""
        ahead = self._on_devices(pending)
        self._under_way = lambda: ahead
        self.segments += np.asarray(segments)

    def take(self) -> Chunk:
        """The chunk under way, as soon as it is there; from now on its segments count."""
        arrays, chunk = self._under_way()
        self.segments = self.segments + arrays["segments"]
        return chunk

    def wait(self) -> Arrays:
        """Until no chunk is under way, so that the workers can be asked for other things."""
        return self._under_way().arrays

    def close(self) -> None:
        """Without waiting: closing the pool dismisses who never answers, and so ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _bring(self, actor: dict[str, Array], iteration: int) -> _Collected:
        """At random while the steps still belong to the warm-up."""
        steps = self.schedule.steps_per_iteration
        random = iteration * steps < self.schedule.warmup_steps
        self.pool.start_chunk(None if random else jax.device_get(actor), steps, iteration)
        return self._on_devices(self.pool.finish_chunk())

    def _on_devices(self, arrays: Arrays) -> _Collected:
        fields: dict[str, Any] = arrays
        return _Collected(arrays, devices.spread(Chunk(**fields), self.pool.lanes))
