"""A sweep on a Ray cluster gives the numbers of this machine, also when a machine of the cluster is lost."""

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sweeps import JOB, assert_same_numbers, closed_gate, owner, sweep_file

from apportion.front.sweep import on_ray
from driver import Answer, Run, apportion, refused
from waiting import gone, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="it needs the extra ray"),
    # Ray leaves pipes and files of the processes that it started to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

SMALL = {"object_store_memory": 80_000_000, "include_dashboard": False}
# A lost machine is missed soon; and how full the memory is of other tests is not Ray's business.
SYSTEM = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "memory_monitor_refresh_ms": 0}


class Machines(NamedTuple):
    cluster: Any
    folder: Path  # for sweeps, which are held until
    gate: Path  # is there
    words: tuple[str, ...]  # flags that lead to the cluster


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A head that only coordinates, and two machines with room for one job each."""
    on_ray.set_up()  # before Ray is imported
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("cluster")
    with closed_gate(folder) as gate:
        head = {**SMALL, "num_cpus": 0, "_system_config": SYSTEM}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, **SMALL)
            yield Machines(cluster, folder, gate, ("--engine", "ray", "--address", cluster.address))
        finally:
            gate.touch()
            cluster.shutdown()


def test_storage_that_the_machines_cannot_see_is_refused(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is called the same everywhere, but is another one for every process."""
    monkeypatch.chdir(tmp_path)
    out = "/proc/self/cwd/out"
    answer = apportion("sweep", sweep_file(tmp_path / "one.toml"), "--out", out, *machines.words)
    refused(answer, 1, f"error: {out} of this machine is not there on ")
    assert answer.err.endswith(": choose an --out on storage that all of them share\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "logs", "sweep.json"]


def test_a_job_whose_machine_is_lost_goes_on_elsewhere_to_the_same_numbers(
    machines: Machines, gated_run: Run
) -> None:
    out = machines.folder / "out"
    lost: list[Any] = []

    def lose_the_machine() -> None:
        job = owner(Run(out / JOB))
        above, nodes = _ancestors(job), machines.cluster.worker_nodes
        lost.extend(node for node in nodes if node.all_processes["raylet"][0].process.pid in above)
        machines.cluster.remove_node(lost[0], allow_graceful=False)
        wait_until(lambda: gone(job))
        machines.gate.touch()

    loser = threading.Thread(target=lose_the_machine, daemon=True)
    loser.start()
    file = sweep_file(machines.folder / "one.toml")
    assert apportion("sweep", file, "--out", out, "--quiet", *machines.words) == Answer(0, "", "")
    loser.join()
    assert len(lost) == 1
    assert_same_numbers(Run(out / JOB), gated_run)


def _ancestors(process: int) -> list[int]:
    """Its parent, the parent of that, and so on."""
    found = []
    while process > 1:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        process = int(fields[1])
        found.append(process)
    return found
