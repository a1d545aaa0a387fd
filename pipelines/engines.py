"""Where the stages of a study and the jobs of a sweep run: as forks on this machine, unless another engine is asked
for.

An engine is a server at a Unix socket, as forks.py describes one: `Engine.run` and the `python` of `write_python` ask
it alike.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipelines.forks import ask, serving
from retable.errors import UsageError

DEVICES = "RETABLE_DEVICES"  # of what is asked for: how many devices it takes, and of which kind: `2 gpu`


@dataclass(frozen=True)
class Engine:
    """Runs modules as `python -m` does, in the working folder.

    Attributes:
        slots: how many it runs at a time.
        hands_out: whether it gives each the devices that it asks for, and has it wait for them.
    """

    address: str
    slots: int
    hands_out: bool = False

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        devices: int = 1,
        gpus: bool = False,
    ) -> int:
        """The exit code of a module, below 0 for a signal; what it prints is added to `log`. It takes `devices`, which
        are processors or `gpus`. Where this process ends, it is asked to end (SIGTERM)."""
        log.touch()
        asked = {**environment, DEVICES: taking(devices, gpus)}
        return ask(self.address, module, arguments, os.getcwd(), asked, str(log), str(log))


def taking(devices: int, gpus: bool) -> str:
    """What DEVICES says."""
    return f"{devices} {'gpu' if gpus else 'cpu'}"


def engine(name: str, slots: int | None = None) -> AbstractContextManager[Engine]:
    """The engine of a name, which ends with its block: what still runs is asked to end, and killed if it doesn't. It
    runs as many at a time as there are processors, or `slots`. UsageError where there is no such engine."""
    if slots is not None and slots < 1:
        raise UsageError(f"jobs={slots} runs nothing; write 1 or more")
    if name != "local":
        raise UsageError(f"there is no engine {name}; write local")
    return _local(slots)


@contextlib.contextmanager
def _local(slots: int | None) -> Iterator[Engine]:
    with serving() as address:
        yield Engine(address, slots or len(os.sched_getaffinity(0)))
