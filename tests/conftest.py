import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from retable.training.signals import CODES

ROOT = Path(__file__).parent.parent

# `make test NAME=value` would pass its variables to every `make` that a test starts, and override those of the test.
for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS"):
    os.environ.pop(name, None)

# This must be set before torch is imported: for tensors of a few numbers, threads wait more than they compute
# (the tests of models and training took 96 s with two threads on two busy cores, 17 s with one).
THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))

# Whether a test passes depends neither on the load of the machine nor on random examples that change each day.
settings.register_profile("retable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("retable")


LONGEST = {"pipelines", "reporting", "training"}  # folders whose files take longest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the folders whose files take longest: short files at the end keep all workers busy.

    One file makes the cells that all workers share. Other files that use these cells come later, so that no worker
    waits.
    """
    sharing = list(dict.fromkeys(item.path for item in items if "cells" in getattr(item, "fixturenames", ())))
    places = {path: 2 * (path in sharing[1:]) for path in sharing}
    items.sort(key=lambda item: (LONGEST.isdisjoint(item.path.parts), places.get(item.path, 1)))


def last_of_each(arguments: Sequence[str]) -> list[str]:
    """Return a command line without settings that a later argument sets again; a stage would reject these."""
    names = [re.sub(r"^\+*([^~=]+)=.*", r"\1", each, flags=re.DOTALL) for each in arguments]
    return [
        each
        for at, each in enumerate(arguments)
        if "=" not in each or each[0] in "-~" or names[at] not in names[at + 1 :]
    ]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Reset torch's number of threads, so that a test that changes it does not slow down later tests."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != THREADS:
        torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Reset signal handlers, so that Ctrl-C reaches pytest after a test whose code handles signals in this process."""
    before = {number: signal.getsignal(number) for number in CODES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data sets, for tests marked `real`."""
    folder = Path(os.environ.get("RETABLE_DATA", ROOT / "data"))
    assert folder.is_dir(), f"tests marked `real` need RETABLE_DATA; {folder} is not a folder"
    return folder.resolve()


@pytest.fixture
def bf16() -> None:
    """Skip a test of torch's LSTM in bf16 on a CPU for which oneDNN has no such LSTM; torch raises an error there."""
    import torch

    if torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bf16 for this processor")


@pytest.fixture
def command(monkeypatch, capsys):
    """Return a function that runs the command `retable`, and returns its exit code and what it prints."""
    from pipelines.cli.main import main

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["retable", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *capsys.readouterr()

    return command


@pytest.fixture(scope="session")
def browser():
    """Start the system's Chromium without a window. Skip the test if there is none."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    if not (path := next(filter(None, map(shutil.which, names)), None)):
        pytest.skip(f"there is no {' or '.join(names)}; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
