"""Where the stages compute that use a trained system: on which device, and in how many processes."""

from collections.abc import Iterator

from omegaconf import DictConfig

from pipelines.record import Record
from retable.systems import AdaptedSystem, MixedSystem, System, TrainedSystem


def place(cfg: DictConfig, system: System) -> None:
    """Put what is trained of a system on the device of this process, and what this machine has in place of each `auto`.
    UsageError for GPUs that it hasn't. What is counted stays with the processor, and one process."""
    if not (trained := [*_trained(system)]):
        cfg.accelerator, cfg.devices = "cpu", 1
        return
    from retable.training.devices import accelerator_here, device_of_process, devices_here, require_gpus

    cfg.accelerator = accelerator_here(cfg.accelerator)
    if cfg.devices == "auto":
        cfg.devices = devices_here(cfg.accelerator, parallel=False)
    require_gpus(cfg.accelerator, cfg.devices)
    for each in trained:
        each.objective.to(device_of_process(cfg.accelerator))


def begin(cfg: DictConfig, record: Record) -> None:
    """Start the other processes, which come here by themselves, and say in the record what the cell is made on."""
    record.costs |= {"accelerator": cfg.accelerator, "devices": cfg.devices}
    if cfg.devices != 1:
        from retable.training.devices import start_processes

        start_processes(cfg.accelerator, cfg.devices)


def _trained(system: System) -> Iterator[TrainedSystem]:
    if isinstance(system, MixedSystem):
        for each in system.systems:
            yield from _trained(each)
    elif isinstance(system, AdaptedSystem):
        yield system.adapted
    elif isinstance(system, TrainedSystem):
        yield system
