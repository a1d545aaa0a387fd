"""Run a stage in the process of its test, with the same code and messages: a second faster than a separate process."""

import contextlib
import gc
import importlib
import io
import logging
import os
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

import numpy as np
import torch
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

import retable.tracking  # noqa: F401, it sets the levels of MLflow's loggers, once
from pipelines.study import compose, dvc_project
from retable.core import digests
from retable.core.stages import module_of
from retable.training.signals import CODES, Stopped

# Hydra composes a command line a second time to find its mode, which no configuration of the project sets.
NO_MODE = mock.patch.object(Hydra, "get_mode", return_value=None)
gc.freeze()  # otherwise each garbage collection visits all objects of the libraries


def run(stage: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> CompletedProcess:
    """Run a stage in a folder with exactly these environment variables. Return what a separate process would return."""
    with printed() as (out, err), as_before(), imported_from(folder, environment), no_caches(), NO_MODE:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [stage, *arguments]
        code = ended(stage)
    return CompletedProcess([stage, *arguments], code, out.getvalue(), err.getvalue())


def ended(stage: str) -> int:
    """Call the function of a stage. Return the exit code that a separate process would have."""
    module, name = importlib.import_module(module_of(stage)), stage.rpartition(".")[2]
    call = getattr(module, "finetune" if name == "from_scratch" else name)
    try:
        call()
    except SystemExit as stop:
        if isinstance(stop.__context__, Stopped):  # the tests' own signal, which the stage handled
            raise KeyboardInterrupt from None
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except BaseException as error:
        if type(error).__name__ in ("Exit", "Failed"):  # exceptions of pytest
            raise
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def printed() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Yield what Python, its libraries and the processes that they start print to both streams inside the block."""
    texts = io.StringIO(), io.StringIO()
    streams = sys.stdout, sys.stderr
    for stream in streams:
        stream.flush()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in texts]
        kept = [os.dup(number) for number in (1, 2)]
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (
            stack.enter_context(open(number, "w", buffering=1, encoding="utf-8", closefd=False)) for number in (1, 2)
        )
        try:
            yield texts
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = streams
            for number, (text, file) in enumerate(zip(texts, files, strict=True), 1):
                os.dup2(kept[number - 1], number)
                os.close(kept[number - 1])
                file.seek(0)
                text.write(file.read().decode("utf-8", "replace"))


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Restore what a stage changes in its process, which would end in a separate run."""
    folder, environment, argv = os.getcwd(), dict(os.environ), sys.argv
    handlers = {number: signal.getsignal(number) for number in CODES}
    logged = {logger: (logger.level, logger.handlers[:], logger.propagate) for logger in loggers()}
    random_states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    configuration = HydraConfig.instance().cfg
    try:
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.showwarning = show_warning
            for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", hidden)
            yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for logger in loggers():
            level, logger.handlers, logger.propagate = logged.get(logger, (logging.NOTSET, [], True))
            if logger.level != level:
                logger.setLevel(level)  # this also clears the caches of its child loggers
        random.setstate(random_states[0])
        np.random.set_state(random_states[1])
        torch.set_rng_state(random_states[2])
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = configuration


@contextlib.contextmanager
def imported_from(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Let Python find modules as a separate process would, and forget modules of the folder afterwards."""
    before = sys.path[:]
    sys.path[:0] = [str(folder), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)


@contextlib.contextmanager
def no_caches() -> Iterator[None]:
    """Clear all caches about the working folder, before and after the block."""
    forget()
    try:
        yield
    finally:
        forget()


def forget() -> None:
    for module in (compose, dvc_project):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    digests._unchecked.clear()
    for engine in SqlAlchemyStore._engine_map.values():
        engine.dispose()  # an open connection would keep a removed file
