"""Engines that run the stages of a study and the jobs of a sweep: forks on this machine, a Ray cluster, or Slurm.

An engine is a server at a Unix socket with the protocol of client.py. `Engine.run` and the script of `write_python`
send the names of modules to the server, which runs them. All machines must see the project's folder and the Python
environment under the same paths.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import environment
from pipelines.config.environment import DEVICES
from pipelines.executors.client import started, submit
from pipelines.executors.devices import Devices, gpus_here
from pipelines.executors.local import server
from retable.core.errors import UsageError

CLUSTERS = ("ray", "slurm")
GIVING_ON = ("prepare", "tokenize")  # stages that run parts of their work on the engine


@dataclass(frozen=True)
class Engine:
    """A running engine, which runs modules as `python -m` does, in the working folder.

    Attributes:
        address: path of the engine's socket.
        devices: the devices of this machine that modules share; `devices.jobs` modules run at a time.
        n_gpus: the number of GPUs that `auto` stands for: all GPUs of this machine, or one GPU of a cluster with GPUs.
        allocates: whether the engine allocates devices itself; a module then waits for its devices.
    """

    address: str
    devices: Devices
    n_gpus: int = 0
    allocates: bool = False

    @property
    def slots(self) -> int:
        return self.devices.jobs

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        devices: int = 1,
        gpus: bool = False,
        nodes: int = 1,
    ) -> int:
        """Run a module and return its exit code, which is negative if a signal ended the module.

        The module gets SIGTERM if this process ends before the module does.

        Args:
            module: name of the module.
            arguments: the module's command line.
            environment: the module's environment variables.
            log: the file to which the module's output is appended.
            devices: number of CPU cores per node; if `gpus` is true, number of GPUs per node.
            gpus: whether devices are GPUs.
            nodes: number of nodes.
        """
        log.touch()
        with_devices = {**environment, DEVICES: resources(devices, gpus, nodes)}
        return submit(self.address, module, arguments, os.getcwd(), with_devices, str(log), str(log))


def resources(devices: int, gpus: bool = False, nodes: int = 1) -> str:
    """Return the value of RETABLE_DEVICES for a process that needs a number of devices on each of several nodes.

    With 0 devices, the process runs on the machine where the user started the command, and the engine runs only the
    parts of the process's work.
    """
    return f"{devices} {'gpu' if gpus else 'cpu'} {nodes}"


def engine(name: str, slots: int | None = None) -> AbstractContextManager[Engine]:
    """Return a context manager that starts an engine and at the end stops it; modules get SIGTERM, later SIGKILL.

    Args:
        name: local, ray or slurm.
        slots: number of modules that run at a time; None for one per CPU core or GPU, whichever are more.

    Raises: UsageError: the engine is unknown or does not start.
    """
    if slots is not None and slots < 1:
        raise UsageError(f"jobs={slots} must be at least 1; write 1 or more")
    if name == "local":
        return _local(slots)
    if name in CLUSTERS:
        return _cluster(name, slots)
    raise UsageError(f"unknown engine {name!r}; write local, {' or '.join(CLUSTERS)}")


@contextlib.contextmanager
def _local(slots: int | None) -> Iterator[Engine]:
    thread = ThreadPoolExecutor(1)
    counting = thread.submit(gpus_here)  # this imports torch, as the server does at the same time
    with server() as address:
        gpus, cores = counting.result(), len(os.sched_getaffinity(0))
        thread.shutdown()
        yield Engine(address, Devices(gpus, max(cores, slots or 0), slots or max(cores, len(gpus))), len(gpus))


@contextlib.contextmanager
def _cluster(name: str, slots: int | None) -> Iterator[Engine]:
    with started(["-m", "pipelines.executors.server", name]) as (address, first_line):
        if not first_line.startswith("ready "):
            raise UsageError(first_line or f"the engine {name} did not start; its output is above")
        cores, n_gpus = map(int, first_line.split()[1:])
        slots = slots or cores
        yield Engine(address, Devices([], slots, slots), min(n_gpus, 1), allocates=True)


@dataclass(frozen=True)
class Workers:
    """Calls a function of the library for each part of some work; an engine runs one process per part.

    Logs of the processes are written to `folder`. A user's mistake in a part raises UsageError.
    """

    runner: Engine
    folder: Path

    @property
    def n(self) -> int:
        return self.runner.slots

    def __call__(self, function: str, parts: Sequence[Sequence[str]]) -> None:
        logs = [self.folder / f"{function.rpartition('.')[2]}-{number:05}.log" for number in range(len(parts))]

        def run(log: Path, part: Sequence[str]) -> int:
            log.unlink(missing_ok=True)
            return self.runner.run("pipelines.execute.worker", [function, *part], os.environ, log)

        with ThreadPoolExecutor(self.n) as threads:
            codes = list(threads.map(run, logs, parts))
        for code, log in zip(codes, logs, strict=True):
            if code != 0:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                mistake = next((line for line in lines if line.startswith("error: ")), None)
                if mistake is None:
                    raise RuntimeError(f"{function} ended with code {code}: {' '.join(lines[-1:])}")
                raise UsageError(mistake.removeprefix("error: "))


@contextlib.contextmanager
def workers(scratch: Path) -> Iterator[Workers | None]:
    """Yield workers on the engine in RETABLE_ENGINE, or None if this engine is `local`, the default.

    RETABLE_ENGINE contains the slots and address of a study's running engine, or the name of an engine to start.
    """
    with contextlib.ExitStack() as kept:
        name = environment.engine()
        if running := re.fullmatch(r"(\d+) (.+)", name):
            runner = Engine(running[2], Devices([], slots := int(running[1]), slots), allocates=True)
        elif name == "local":
            yield None
            return
        else:
            runner = kept.enter_context(engine(name))
        (folder := scratch / "parts").mkdir(exist_ok=True)
        kept.callback(shutil.rmtree, folder)
        yield Workers(runner, folder)
