import os

import pytest
import torch

from retable.core.errors import UsageError
from retable.training.devices import accelerator_here, devices_here, limit_threads, require_gpus


@pytest.fixture
def gpus(monkeypatch):
    """Make torch count this many GPUs, and Python this many cores."""

    def have(number: int, cores: int = 8) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    return have


@pytest.mark.parametrize(
    ("number", "cores", "accelerator", "devices", "alone"),
    [(8, 64, "gpu", 8, 8), (1, 8, "gpu", 1, 1), (0, 64, "cpu", 2, 1), (0, 1, "cpu", 1, 1)],
)
def test_auto_is_what_the_machine_has(gpus, number, cores, accelerator, devices, alone):
    gpus(number, cores)
    assert accelerator_here("auto") == accelerator
    assert devices_here(accelerator, parallel=True) == devices
    assert devices_here(accelerator, parallel=False) == alone


def test_settings_that_suit_the_machine_stay(gpus):
    gpus(8)
    assert accelerator_here("cpu") == "cpu" and devices_here("cpu", parallel=True) == 2
    for devices in (1, 2, [0, 1], [7]):
        require_gpus("gpu", devices)
    gpus(0)
    require_gpus("cpu", 64)


@pytest.mark.parametrize(("cores", "before", "processes", "threads"), [
    (8, 8, 2, 4),
    (8, 1, 2, 1),  # `make repro` gives each process one thread
    (2, 2, 4, 1),
    (16, 8, 1, 8),  # torch counts one thread per physical core
])  # fmt: skip
def test_processes_share_the_cores(gpus, monkeypatch, cores, before, processes, threads):
    gpus(0, cores)
    chosen = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: before)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    limit_threads(processes)
    assert chosen == [threads]


@pytest.mark.parametrize(("number", "devices", "line"), [
    (0, 1, "accelerator=gpu: torch finds no GPU here; write cpu, or auto"),
    (1, 2, "devices=2: torch finds 1 GPU here; write 1, or auto"),
    (4, 8, "devices=8: torch finds 4 GPUs here; write 4, or auto"),
    (4, [3, 4], r"devices=\[3, 4\]: torch finds 4 GPUs here; write 4, or auto"),
])  # fmt: skip
def test_gpus_that_are_missing_are_refused(gpus, number, devices, line):
    gpus(number)
    with pytest.raises(UsageError, match=line):
        require_gpus("gpu", devices)
