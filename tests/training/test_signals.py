"""Test what a signal does to a process that trains, that is still starting, or that does not listen."""

import os
import signal

import pytest

from retable.training.signals import StepEnd, Stopped, end_at_once, leave, listen


def test_a_signal_waits_for_the_end_of_the_step_and_a_second_one_does_not():
    listen()
    with pytest.raises(Stopped, match=r"^SIGUSR1: stopped after the last step, with a") as end, StepEnd() as step_end:
        step_end.begin()
        signal.raise_signal(signal.SIGUSR1)
        assert step_end.received == signal.SIGUSR1
    assert end.value.code == 99
    with pytest.raises(Stopped, match=r"^SIGTERM: stopped; run"), StepEnd() as step_end:
        step_end.begin()
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
    leave()
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_process_that_imports_ends_with_a_line(monkeypatch, capfd):
    monkeypatch.setattr(os, "_exit", exit)
    end_at_once()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGHUP)
    assert ended.value.code == 129
    assert capfd.readouterr().err == "SIGHUP: stopped; run the same command again to resume\n"
