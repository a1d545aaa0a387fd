"""Being asked to end: by Ctrl-C, a terminal that closes, a scheduler's SIGTERM, or SIGUSR1 before the machine is taken
back.

A training ends behind the step that it is in, whose checkpoint it leaves; whatever else a stage does ends at once.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

# What a shell makes of SIGINT and SIGTERM; behind SIGUSR1 comes what has a scheduler run the job again: 99 by itself in
# Grid Engine, with RequeueExit=99 in Slurm, with checkpoint_exit_code = 99 in HTCondor.
CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 99}

PARTNER_LOST = (
    "another process of this training has ended, or was killed; what it printed is above; the same command resumes "
    "from the last checkpoint"
)


class Stopped(BaseException):
    """The process is to end with `code`. No Exception: nothing went wrong, and nothing is to be made good."""

    def __init__(self, number: int, where: str = ""):
        super().__init__(f"{signal.Signals(number).name}: ended{where}; the same command goes on from there")
        self.code = CODES[signal.Signals(number)]


class Pruned(BaseException):
    """A search has ended the training behind the validation of `step`, for others were better there."""

    def __init__(self, step: int):
        super().__init__(f"pruned behind step {step}")
        self.step = step


def listen() -> None:
    """From now on a signal raises Stopped in the main thread."""
    for number in _heard():
        signal.signal(number, _end)


def end_at_once() -> None:
    """From now on a signal ends the process, with its line: while there is nothing yet that would have to be ended.

    An exception amid an import leaves modules half made, and some libraries raise another one in its place.
    """
    for number in _heard():
        signal.signal(number, _exit)


def leave() -> None:
    """What Python does by itself: for a fork that has another purpose than the process that listened."""
    for number in _heard():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def go_quietly() -> None:
    """What the system does by itself: for a process whose work is done or given up, and that only ends."""
    for number in _heard():
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Have signals wait until the end of the block, or `deliver`: in this process, and in what it forks meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, CODES)
    try:
        yield
    finally:
        deliver()


def deliver() -> None:
    """Let signals through that `held` has kept."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)


def _heard() -> list[signal.Signals]:
    """All but the end of a terminal that the process was told to outlast, as by `nohup`."""
    return [each for each in CODES if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]


def _end(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def _exit(number: int, _: FrameType | None) -> None:
    stopped = Stopped(number)
    with contextlib.suppress(OSError):  # the terminal is closed
        os.write(2, f"{stopped}\n".encode())
    os._exit(stopped.code)


class StepEnd:
    """Within it, where the process listens, a signal waits for the end of a step; a second one ends at once.

    heard: the signal that came. One that nobody took, behind the last step, ends the process where the block ends.
    """

    heard: int | None = None

    def __enter__(self) -> Self:
        self._listening = signal.getsignal(signal.SIGTERM) is _end
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._listening:
            listen()
        if self.heard is not None and failed is None:
            raise Stopped(self.heard, " behind the last step, which is kept")

    def begin(self) -> None:
        """Begin to wait: when Lightning has put its own handlers in the way, which end a training with exit code 0."""
        if self._listening:
            for number in _heard():
                signal.signal(number, self._hear)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.heard is not None:
            raise Stopped(number)
        self.heard = number
