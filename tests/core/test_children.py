"""A function in a process of its own gives and raises what it does here, and ends with us; signals ask."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from apportion.core.children import StopRequest, apart
from apportion.core.config import UserError, check
from waiting import gone, wait_until


def test_arrays_go_there_and_come_back() -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 20)
    np.testing.assert_array_equal(apart(np.transpose, x, axes=(1, 0)), x.T)
    assert apart(os.getpid) != os.getpid()


def test_its_error_comes_back_with_the_place_where_it_happened_and_its_death_is_told() -> None:
    with pytest.raises(UserError) as caught:
        apart(check, False, "lower it")
    assert str(caught.value) == "lower it"
    assert "in check" in caught.value.__notes__[0]
    with pytest.raises(UserError, match=r"the process of _exit died \(exit code 3\)"):
        apart(os._exit, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it takes a second")
def test_it_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = (
        "import runpy, sys; from apportion.core.children import apart;"
        "apart(runpy.run_path, sys.argv[1], {'told': sys.argv[2]})"
    )
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import os, time\nopen(told, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    ours = subprocess.Popen([sys.executable, "-c", code, str(sleeper), str(told)])
    wait_until(lambda: told.exists() and told.read_text() != "")
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    wait_until(lambda: gone(int(told.read_text())))


# --- One signal asks, a second Ctrl-C insists, and afterwards all is as before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_a_request(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # whatever these tests were started with, as by nohup
    try:
        with StopRequest() as stop:
            assert (stop.requested, stop.signal) == (False, None)
            os.kill(os.getpid(), number)
            assert (stop.requested, stop.signal) == (True, number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_another_interrupt_stops_at_once_and_another_sigterm_changes_nothing(first: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == first
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_nohup_stays_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_may_use_it_and_hears_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    heard = []

    def work() -> None:
        with StopRequest() as stop:
            heard.append((stop.requested, signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [(False, True)]
