"""One signal asks, a second Ctrl-C insists, and afterwards all is as before."""

import os
import signal
import threading

import pytest

from apportion.core.children import StopRequest


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
