"""Worker processes do what the same lanes do in this process, and fail in one line."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from actors import actor

from apportion.core.config import UserError
from apportion.envs import processes, supervisor
from apportion.envs.lane import Noise
from apportion.envs.make import EnvConfig
from apportion.envs.processes import InProcess, Process
from apportion.envs.supervisor import Pool, default_workers
from builders import assert_equal
from waiting import gone, wait_until

HEAD = "tanh_gaussian"


def _pool(env_id: str, workers: int, lanes: int = 1) -> Pool:
    return Pool(EnvConfig(env_id, delay="3-6"), list(range(10, 10 + lanes)), HEAD, workers)


def _chunk(pool: Pool, actors: Any, steps: int, iteration: int) -> dict[str, Any]:
    pool.start_chunk(actors, steps, iteration)
    return pool.finish_chunk()


def _niceness(connection: Process | InProcess) -> int:
    """Above this process's own."""
    assert isinstance(connection, Process)
    return os.getpriority(os.PRIO_PROCESS, connection.process.pid) - os.getpriority(os.PRIO_PROCESS, 0)


def _process(pool: Pool, worker: int = 0) -> "subprocess.Popen[bytes]":
    connection = pool.teams[0][worker].worker
    assert isinstance(connection, Process)
    return connection.process


def test_processes_do_exactly_what_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lanes on two workers and in here: warm-up, chunks, evaluation by two teams, being put back."""
    monkeypatch.setattr(supervisor, "spare_teams", lambda workers: 2)
    noise = Noise(0.1, (0, 3))
    env_id, actors = "apportion/Greenhouse-v0", actor(10, 3, 3)
    with _pool(env_id, 2, lanes=3) as outside, _pool(env_id, 0, lanes=3) as inside:
        assert outside.spec.to_dict() == inside.spec.to_dict()
        assert [len(group) for group in outside.groups] == [2, 1]
        assert_equal(_chunk(outside, None, 11, 0), _chunk(inside, None, 11, 0))
        where = outside.where()
        first = _chunk(inside, actors, 50, 1)
        assert first["observation"].shape == (3, 101, 10)
        assert_equal(_chunk(outside, actors, 50, 1), first)
        played = inside.episodes(actors, 1, 3, noise), outside.episodes(actors, 1, 3, noise)
        assert (len(inside.teams), len(outside.teams)) == (1, 2)
        assert [[_niceness(each.worker) for each in team] for team in outside.teams] == [[0, 0], [10, 10]]
        assert_equal(*played)
        assert [len(lane) for lane in played[0]] == [3, 3, 3]
        outside.put_back(where)
        inside.put_back(where)
        assert_equal(_chunk(outside, actors, 50, 1), first)
        assert_equal(_chunk(inside, actors, 50, 1), first)
        assert not np.array_equal(first["observation"][0], first["observation"][1])


def test_spare_workers_play_while_the_others_collect() -> None:
    env_id, actors = "apportion/Greenhouse-v0", actor(10, 3, 2)
    with _pool(env_id, 2, lanes=2) as outside, _pool(env_id, 0, lanes=2) as inside:
        outside.start_chunk(actors, 50, 1)
        played = outside.episodes(actors, 1, 2, beside_training=True)
        assert_equal(outside.finish_chunk(), _chunk(inside, actors, 50, 1))
        assert_equal(played, inside.episodes(actors, 1, 2, beside_training=True))
        assert (outside.has_spare_workers, inside.has_spare_workers) == (True, False)
        assert len(outside.teams) >= 2


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a pipe's size is the system's")
def test_a_policy_is_sent_without_waiting_for_who_reads_it() -> None:
    """Of 256-256 units, to a worker that stands still."""
    shapes = {"mask": (10,), "w0": (10, 256), "b0": (256,), "w1": (256, 256), "b1": (256,), "w2": (256, 6)}
    actors = {name: np.zeros((1, *shape), np.float32) for name, shape in {**shapes, "b2": (6,)}.items()}
    with _pool("apportion/Greenhouse-v0", 1) as pool:
        worker = _process(pool).pid
        os.kill(worker, signal.SIGSTOP)
        sender = threading.Thread(target=pool.start_chunk, args=(actors, 5, 0))
        try:
            sender.start()
            sender.join(timeout=20)
            assert not sender.is_alive()
        finally:
            os.kill(worker, signal.SIGCONT)
            sender.join()
        assert pool.finish_chunk()["observation"].shape == (1, 11, 10)


def test_a_worker_imports_neither_jax_nor_more_of_the_package_than_it_needs() -> None:
    """The environment looks for itself."""
    with _pool("lane_envs:SeesJax-v0", 1) as outside, _pool("lane_envs:SeesJax-v0", 0) as inside:
        assert _chunk(inside, None, 2, 0)["observation"][0, 1:3].all()
        assert not _chunk(outside, None, 2, 0)["observation"][0, 1:3].any()
    script = (
        "import sys, apportion.envs.worker, apportion.envs.greenhouse, apportion.envs.factored;"
        "heavy = {'jax', 'mujoco', 'scipy', 'equinox'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "ours = {name for name in sys.modules if name.startswith('apportion.')};"
        "assert all(name.startswith(('apportion.envs', 'apportion.core')) for name in ours), ours"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("env_id", "workers", "complaint"),
    [
        *(("lane_envs:Raises-v0", n, "^the environment raised RuntimeError: the motor is") for n in (0, 1)),
        ("lane_envs:OldStep-v0", 0, r"expected 5, got 4\) .*step returns five"),
        ("lane_envs:OldReset-v0", 0, r"'seed' \(it is called as reset\(seed=\.\.\., options=\.\.\.\)\)$"),
        ("lane_envs:NanObservation-v0", 1, "step 3: observation has nan in dimension 1"),
        ("Nowhere-v0", 1, "unknown environment 'Nowhere-v0'"),
    ],
)
def test_complaints_arrive_as_they_are_and_a_traceback_of_an_own_bug_is_shown(
    env_id: str, workers: int, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=complaint), _pool(env_id, workers) as pool:
        _chunk(pool, None, 5, 0)
    assert "Raises" not in env_id or "in step" in capfd.readouterr().err


def test_who_prints_or_asks_for_input_does_not_break_the_stream(capfd: pytest.CaptureFixture[str]) -> None:
    with _pool("lane_envs:Talks-v0", 1) as pool:
        assert int(_chunk(pool, None, 5, 0)["rows"][0]) == 5
    out, err = capfd.readouterr()
    assert (out, err.count("hello from the environment")) == ("", 5)
    with _pool("lane_envs:Asks-v0", 1) as pool:
        assert not _chunk(pool, None, 5, 0)["observation"][0, 1:6].any()
        assert int(_chunk(pool, None, 1, 1)["rows"][0]) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("forgets", [False, True])
def test_environments_are_closed_and_nothing_that_they_started_is_left(
    forgets: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 120.0)  # however busy the machine is
    config = EnvConfig("lane_envs:Simulator-v0", kwargs=json.dumps({"forgets": forgets}))
    with Pool(config, [0, 1], HEAD, workers=1) as pool:
        thousands, rest = np.moveaxis(_chunk(pool, None, 2, 0)["observation"][:, 1].astype(int), -1, 0)
        simulators = (1000 * thousands + rest).tolist()
        assert not any(map(gone, simulators))
    assert capfd.readouterr().err.count("the simulator ended with -15") == (0 if forgets else 2)
    wait_until(lambda: all(map(gone, simulators)))


@pytest.mark.parametrize("when", ["idle", "asked"])
def test_a_killed_worker_is_named_not_waited_for(when: str) -> None:
    dead = pytest.raises(UserError, match=r"an environment worker died \(exit code -9\)")
    with dead, _pool("lane_envs:Walk-v0", 1) as pool:
        process = _process(pool)
        if when == "asked":
            pool.start_chunk(None, 1_000_000, 0)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if when == "idle":
            pool.start_chunk(None, 5, 0)
        pool.finish_chunk()


def test_closing_while_a_chunk_is_under_way_leaves_no_process_and_no_noise(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDEVMODE", "1")  # says what is lost on leaving, as Python 3.13 always does
    pool = _pool("lane_envs:Walk-v0", 1)
    process = _process(pool)
    pool.start_chunk(None, 2000, 0)
    pool.close()
    assert process.returncode is not None
    assert capfd.readouterr().err == ""


def test_closing_ends_an_environment_that_is_stuck_and_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.2)
    with ThreadPoolExecutor(1) as thread:
        with _pool("lane_envs:Stuck-v0", 2, lanes=2) as pool:
            chunk = thread.submit(_chunk, pool, None, 10, 0)
        assert isinstance(chunk.exception(), UserError | ValueError)


def test_a_worker_may_be_ended_by_several_at_once() -> None:
    connection = processes.Process(EnvConfig(id="lane_envs:Stuck-v0"), [0], "gaussian", spare=False)
    with ThreadPoolExecutor(4) as threads:
        ends = [threads.submit(connection.end, 0.2) for _ in range(4)]
        assert [end.exception() for end in ends] == [None] * 4
    assert connection.process.returncode == -9


def test_a_worker_per_lane_but_half_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert [default_workers(lanes) for lanes in (1, 8, 100)] == [1, 8, 8]
    assert [default_workers(lanes, learns_here=False) for lanes in (1, 8, 14)] == [1, 8, 14]
    # With 14 of them one would still have two lanes to serve, as with 10.
    assert [default_workers(lanes, learns_here=False) for lanes in (20, 100)] == [10, 13]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert default_workers(4) == 1
    assert default_workers(4, learns_here=False) == 1
