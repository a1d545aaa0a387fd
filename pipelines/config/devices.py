"""Replace each `auto` in the trainer's settings by this machine's values."""

from typing import Any

from omegaconf import DictConfig

from pipelines.config.conf import FULL
from retable.core.stages import USING_STAGES


def choose_machine(stage: str, cfg: DictConfig) -> None:
    """Replace `auto` in the trainer's accelerator, number of devices and precision.

    For stages that use a trained system, the precision `auto` becomes full precision. The cell's configuration contains
    the chosen values, and training resumes only with the same values.
    """
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
    """Check that this machine supports the trainer's devices and precision; set the precision of matrix products.

    Raises: UsageError: the GPUs or the precision are not available here.
    """
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
    """Return the trainer's settings, or {} if the settings are missing or not a mapping (see `check_settings`)."""
    return trainer if isinstance(trainer := cfg.get("trainer"), DictConfig) else {}
