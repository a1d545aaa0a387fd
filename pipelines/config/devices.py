"""What this machine has in place of each `auto` of the trainer."""

from typing import Any

from omegaconf import DictConfig

from pipelines.config.conf import FULL
from retable.core.stages import USING_STAGES


def choose_machine(stage: str, cfg: DictConfig) -> None:
    """Put what this machine has in place of each `auto` of the trainer: its accelerator, the number of its devices, the
    precision, which to measure is full. The cell then says which they were, and resumes with them."""
    trainer = _trainer(cfg)
    if trainer.get("accelerator") == "auto" or trainer.get("devices") == "auto":
        from retable.training.devices import accelerator_here, devices_here

        trainer.accelerator = accelerator_here(trainer.get("accelerator", "auto"))
        if trainer.get("devices") == "auto":
            trainer.devices = devices_here(trainer.accelerator, "strategy" in trainer)
    if trainer.get("precision") == "auto":
        from retable.training.precision import fastest_precision

        trainer.precision = FULL if stage in USING_STAGES else fastest_precision(trainer.accelerator)


def require_machine(cfg: DictConfig) -> None:
    """Have this machine multiply in the trainer's precision. UsageError for GPUs, or a precision, that it has not."""
    trainer = _trainer(cfg)
    if trainer.get("accelerator", "cpu") != "cpu":
        from retable.training.devices import require_gpus

        require_gpus(trainer.accelerator, trainer.get("devices", 1))
    precision, on_cpu = str(trainer.get("precision", "")), trainer.get("accelerator", "cpu") == "cpu"
    if "bf16" in precision or not on_cpu:
        from retable.training.precision import multiply_in, require_precision

        require_precision(precision, trainer.accelerator)
        multiply_in(precision, trainer.accelerator)


def _trainer(cfg: DictConfig) -> Any:
    """The settings of the trainer; none where there are none, or where a text stands in their place, which
    `check_settings` refuses."""
    return trainer if isinstance(trainer := cfg.get("trainer"), DictConfig) else {}
