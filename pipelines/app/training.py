"""Training for stages: pass settings to `fit`, and write weights, learning curve and costs to the cell."""

import os
import time

import torch
from omegaconf import DictConfig

from pipelines.app.observers import callbacks
from pipelines.app.run_folder import RunFolder
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.data.batches import Batches, Measure
from retable.nn import fused
from retable.nn.product import onednn_is_faster
from retable.objectives.base import Objective, SelfUpdating
from retable.training.budget import parse_budget
from retable.training.cost import flops_utilisation, product_rate, training_cost
from retable.training.curve import write_curve
from retable.training.fit import fit
from retable.training.progress import Best
from retable.training.weights import save_weights


def train(
    cfg: DictConfig,
    record: RunFolder,
    objective: Objective | SelfUpdating,
    batches: Batches,
    validation: Measure | None,
    best: Best | None = None,
) -> torch.device:
    """Train an objective and write `model.safetensors`, `curve.csv`, metrics and costs to the cell.

    Args:
        cfg: the stage's configuration.
        record: the open cell.
        objective: the objective to train; it is on the CPU afterwards.
        batches: the training batches.
        validation: the measure on validation text; None to train without validation.
        best: the rule that stops training early and selects the validation whose weights are kept; None to keep the
            last weights.

    Returns: the device that this process trained on.
    Raises: UsageError: the budget is in tokens or FLOPs, which are not counted for this training.
    """
    started = time.monotonic()
    amount, unit = parse_budget(cfg.budget) if cfg.get("budget") else (None, None)
    cost = training_cost(objective, batches)
    max_steps = cfg.get("max_steps")
    if amount is not None and unit in ("tokens", "flops"):
        if not cost.get(unit):
            raise UsageError(
                f"budget={cfg.budget}: {unit} are not counted in this training; write ++max_steps=N, or budget=10min"
            )
        within = max(int(amount / cost[unit]), 1)
        max_steps = within if max_steps is None else min(max_steps, within)
    points, stepped, seconds, kept, device, devices = fit(
        objective,
        batches,
        seed=cfg.seed,
        epochs=cfg.epochs,
        optimizer=build(cfg.optimizer, "optimizer"),
        schedule=build(cfg.schedule, "schedule"),
        clip_norm=cfg.clip_norm,
        trainer=dict(cfg.trainer),
        scratch=record.scratch,
        checkpoint_every=cfg.checkpoint_every,
        validations=cfg.validations,
        validation=validation,
        log=record.log,
        averaging=build(cfg.averaging, "averaging") if cfg.get("averaging") else None,
        max_steps=max_steps,
        seconds=amount if unit == "seconds" else None,
        best=best,
        callbacks=callbacks(cfg),
        compile=cfg.get("compile", False),
        cuda_graph=cfg.get("cuda_graph", True),
    )
    record.log(points)
    save_weights(objective, record.folder / "model.safetensors")
    write_curve(points, record.folder / "curve.csv")
    steps = points[-1].step if points else kept  # after a very short training, `points` may be empty
    record.metrics |= {point.metric: point.value for point in points if point.step == steps}
    record.metrics |= {point.metric: point.value for point in points if point.step == kept}
    record.metrics |= {"steps": steps, "parameters": sum(p.numel() for p in objective.parameters())}
    record.metrics |= {unit: round(steps * each) for unit, each in cost.items()}
    record.costs["training_seconds"] = round(time.monotonic() - started, 2)
    # The speed of processes that share CPU cores says nothing about the system.
    if device.type != "cpu" or cfg.trainer.devices <= len(os.sched_getaffinity(0)):
        record.costs |= {
            f"{unit}_per_second": round(stepped * each / seconds) for unit, each in cost.items() if stepped
        }
    if device.type == "cuda":
        record.costs["peak_gpu_memory_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
        if stepped and cost:
            share = flops_utilisation(stepped * cost["flops"] / seconds, torch.cuda.get_device_name(), devices)
            record.costs |= {} if share is None else {"flops_utilisation": round(share, 4)}
    else:  # the last digits of results depend on these values
        threads = torch.get_num_threads()
        record.costs |= {"threads": threads, "compiled_kernels": int(fused.COMPILED is not None)}
        record.costs["onednn_products"] = int(onednn_is_faster(threads))
    if device.type == "cpu" and devices == 1 and stepped and cost.get("flops"):
        rate = product_rate(torch.bfloat16 if cfg.trainer.precision == "bf16-mixed" else torch.float32)
        record.costs["product_flops_per_second"] = round(rate)
        record.costs["flops_utilisation"] = round(stepped * cost["flops"] / seconds / rate, 4)
    return device
