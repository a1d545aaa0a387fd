"""Where the stages of a study and the jobs of a sweep run: as forks on this machine, on a Ray cluster, or by Slurm.

An engine is a server at a Unix socket, by the protocol of client.py: `Engine.run` and the script of `write_python` use
it. All machines see the project's folder, and the environment with its Python, under the same path.
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
from pipelines.executors.local import server
from retable.core.errors import UsageError

CLUSTERS = ("ray", "slurm")
GIVING_ON = ("prepare", "tokenize")  # the stages that have parts of their work run


@dataclass(frozen=True)
class Engine:
    """Runs modules as `python -m` does, in the working folder.

    Attributes:
        slots: how many it runs at a time.
        allocates: whether it gives each the devices that it asks for, and has it wait for them.
    """

    address: str
    slots: int
    allocates: bool = False

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
        """The exit code of a module, below 0 for a signal; what it prints is added to `log`. It takes `devices` of each
        of so many nodes, which are processors or `gpus`. Where this process ends, it is asked to end (SIGTERM)."""
        log.touch()
        asked = {**environment, DEVICES: resources(devices, gpus, nodes)}
        return submit(self.address, module, arguments, os.getcwd(), asked, str(log), str(log))


def resources(devices: int, gpus: bool = False, nodes: int = 1) -> str:
    """What DEVICES says of a process that is to have `devices` of each of so many nodes. None at all has what gives its
    work on to the engine: it runs where the command was given."""
    return f"{devices} {'gpu' if gpus else 'cpu'} {nodes}"


def engine(name: str, slots: int | None = None) -> AbstractContextManager[Engine]:
    """The engine of a name, which ends with its block: what still runs is asked to end, and killed if it doesn't. It
    runs as many at a time as it has processors, or `slots`. UsageError where there is no such engine."""
    if slots is not None and slots < 1:
        raise UsageError(f"jobs={slots} runs nothing; write 1 or more")
    if name == "local":
        return _local(slots)
    if name in CLUSTERS:
        return _cluster(name, slots)
    raise UsageError(f"there is no engine {name}; write local, {' or '.join(CLUSTERS)}")


@contextlib.contextmanager
def _local(slots: int | None) -> Iterator[Engine]:
    with server() as address:
        yield Engine(address, slots or len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def _cluster(name: str, slots: int | None) -> Iterator[Engine]:
    with started(["-m", "pipelines.executors.server", name]) as (address, said):
        if not said.startswith("ready "):
            raise UsageError(said or f"the engine {name} has not begun; what it said stands above")
        yield Engine(address, slots or int(said.removeprefix("ready ")), allocates=True)


@dataclass(frozen=True)
class Workers:
    """Has an engine call a function of the library for each part of some work, a process each.

    What they leave to be joined, and say, is in `folder`. UsageError for the first that fails by a mistake of use.
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
                said = next((line for line in lines if line.startswith("error: ")), None)
                if said is None:
                    raise RuntimeError(f"{function} ended with code {code}: {' '.join(lines[-1:])}")
                raise UsageError(said.removeprefix("error: "))


@contextlib.contextmanager
def workers(scratch: Path) -> Iterator[Workers | None]:
    """What has the engine do parts of this process's work: that of the study that it is a stage of, or the one that
    RETABLE_ENGINE names. None where all is done here."""
    with contextlib.ExitStack() as kept:
        said = environment.engine()
        if found := re.fullmatch(r"(\d+) (.+)", said):
            runner = Engine(found[2], int(found[1]), allocates=True)
        elif said == "local":
            yield None
            return
        else:
            runner = kept.enter_context(engine(said))
        (folder := scratch / "parts").mkdir(exist_ok=True)
        kept.callback(shutil.rmtree, folder)
        yield Workers(runner, folder)
