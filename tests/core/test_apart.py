"""A function in a process of its own gives and raises what it does here, and ends with us."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from apportion.core.children import apart
from apportion.core.config import UserError, check


def test_arrays_go_there_and_come_back() -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 20)
    np.testing.assert_array_equal(apart(np.transpose, x, axes=(1, 0)), x.T)
    assert apart(os.getpid) != os.getpid()


def test_its_error_comes_back_with_the_place_where_it_happened() -> None:
    with pytest.raises(UserError) as caught:
        apart(check, False, "lower it")
    assert str(caught.value) == "lower it"
    assert "in check" in caught.value.__notes__[0]


def test_a_process_that_dies_is_named() -> None:
    with pytest.raises(UserError, match=r"the process of _exit died \(exit code 3\)"):
        apart(os._exit, 3)


def _wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


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
    _wait_for(lambda: told.exists() and told.read_text() != "")
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    _wait_for(lambda: not Path(f"/proc/{told.read_text()}").exists())
