"""Handling of signals that ask the process to stop: Ctrl-C, a closed terminal, SIGTERM, or SIGUSR1 (preemption).

After a signal, a training finishes its current step, writes a checkpoint and exits. All other work of a stage stops at
once.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

# The exit codes for SIGHUP, SIGINT and SIGTERM are the same as in a shell. The code 99 for SIGUSR1 makes schedulers run
# the job again: Grid Engine by default, Slurm with RequeueExit=99, HTCondor with checkpoint_exit_code = 99.
CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 99}

PARTNER_LOST = (
    "another process of this training has ended or was killed (its output is above); run the same command again to "
    "resume from the last checkpoint"
)


class Stopped(BaseException):
    """A request to exit with `code`. The class is not an `Exception`, so that `except Exception` does not catch it."""

    def __init__(self, number: int, where: str = ""):
        super().__init__(f"{signal.Signals(number).name}: stopped{where}; run the same command again to resume")
        self.code = CODES[signal.Signals(number)]


class Pruned(BaseException):
    """Raised if a hyperparameter search ends a training because other trials were better.

    step: the step of the last validation.
    """

    def __init__(self, step: int):
        super().__init__(f"pruned after step {step}")
        self.step = step


def listen() -> None:
    """Make signals raise Stopped in the main thread."""
    for number in _handled_signals():
        signal.signal(number, _end)


def end_at_once() -> None:
    """Make signals print one line and end the process; for use while there is nothing to clean up.

    The function is used during imports. An exception in an import would leave modules half initialised, and some
    libraries would raise a different exception instead.
    """
    for number in _handled_signals():
        signal.signal(number, _exit)


def leave() -> None:
    """Restore Python's default signal handlers; for forked processes that do not listen for signals."""
    for number in _handled_signals():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def reset_handlers() -> None:
    """Restore the system's default signal handlers; for processes that only have to exit."""
    for number in _handled_signals():
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delay signals until the `with` block ends or `deliver` is called, also in processes forked in the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, CODES)
    try:
        yield
    finally:
        deliver()


def deliver() -> None:
    """Deliver the signals that `held` has delayed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)


def _handled_signals() -> list[signal.Signals]:
    """Return the signals to handle, without SIGHUP if this process ignores it (`nohup`)."""
    return [each for each in CODES if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]


def _end(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def _exit(number: int, _: FrameType | None) -> None:
    stopped = Stopped(number)
    with contextlib.suppress(OSError):  # raised if stderr is a closed terminal
        os.write(2, f"{stopped}\n".encode())
    os._exit(stopped.code)


class StepEnd:
    """A context manager that delays a signal to the end of the training step.

    A second signal stops the process at once.

    The context manager has no effect in processes that do not listen for signals. A signal after the last step stops
    the process at the end of the `with` block.

    received: the signal that arrived, or None.
    """

    received: int | None = None

    def __enter__(self) -> Self:
        self._listening = signal.getsignal(signal.SIGTERM) is _end
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._listening:
            listen()
        if self.received is not None and failed is None:
            raise Stopped(self.received, " after the last step, with a checkpoint")

    def begin(self) -> None:
        """Replace Lightning's signal handlers by handlers that wait for the end of the step.

        Lightning's handlers would end a training with exit code 0.
        """
        if self._listening:
            for number in _handled_signals():
                signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            raise Stopped(number)
        self.received = number
