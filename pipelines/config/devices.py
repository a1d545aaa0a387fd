"""Replace each `auto` in the trainer's settings by this machine's values."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from pipelines.config.conf import FULL
from retable.core.stages import USING_STAGES


def choose_machine(stage: str, cfg: DictConfig) -> None:
    """Replace `auto` in the trainer's accelerator, number of devices and precision.

    With the accelerator `auto`, systems that are not trained in batches run on the CPU. For stages that use a trained
    system, the precision `auto` becomes full precision. The cell's configuration contains the chosen values, and
    training resumes only with the same values.
    """
    trainer = _trainer(cfg)
    if trainer.get("accelerator") == "auto" and not _in_batches(stage, cfg):
        trainer.accelerator = "cpu"
    if trainer.get("accelerator") == "auto" or trainer.get("devices") == "auto":
        from retable.training.devices import accelerator_here, devices_here

        trainer.accelerator = accelerator_here(trainer.get("accelerator", "auto"))
        if trainer.get("devices") == "auto":
            trainer.devices = devices_here(trainer.accelerator, "strategy" in trainer)
    if trainer.get("precision") == "auto":
        from retable.training.precision import fastest_precision

        trainer.precision = FULL if stage in USING_STAGES else fastest_precision(trainer.accelerator)


def _in_batches(stage: str, cfg: DictConfig) -> bool:
    """Return whether a stage computes in batches, which GPUs can do; n-grams, for example, are counted on the CPU."""
    counted = stage == "pretrain" and cfg.get("objective") is None
    finetuning = cfg.get("finetuning")  # check_settings reports a value that is not a mapping
    estimated = isinstance(finetuning, DictConfig) and finetuning.get("lr") == 0  # estimated from all examples at once
    return not (counted or estimated or cfg.get("word_by_word"))


def without_gpus(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `auto` by the values of a machine without GPUs, if the accelerator is `auto`.

    Plans contain these values, so that cells do not become stale on a machine with other devices.
    """
    values = {"accelerator": "cpu", "devices": 1, "precision": FULL} if trainer.get("accelerator") == "auto" else {}
    return {**trainer, **{name: value for name, value in values.items() if trainer.get(name) == "auto"}}


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
