"""The Lightning module that trains and measures every neural system."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from retable.core.errors import UsageError
from retable.data.batches import Measure, Scaled
from retable.nn.product import use_faster_products
from retable.objectives.base import Objective, SelfUpdating
from retable.objectives.causal_lm import CausalLM
from retable.training.averaging import Average
from retable.training.blocks import FullySharded, shard
from retable.training.graphed import GraphedStep, map_tensors, obstacle
from retable.training.observers import PointLogger

GRAPHED_ON = ("cuda",)  # kinds of devices on which the steps of launch-bound models run as one graph


class Training(L.LightningModule):
    """An objective, an optimizer and a schedule. The class `Data` provides batches and measures.

    `Training.load_from_checkpoint(path, objective=…)` loads a Training for validation, test or prediction.

    All randomness inside a step (dropout, masking, negative samples) is seeded with (seed, step, rank). So a resumed
    run needs only the tensors and counters of its checkpoint. For a batch of the class `Scaled`, the learning rate of
    the step is multiplied by the batch's scale, after gradient clipping.

    With Lightning's `accumulate_grad_batches` = n, each process splits its rows of a batch into n parts. The parts are
    computed one after the other, with the same results as in n times as many processes: each part has a separate seed
    and a separate recurrent state.

    averaging: function that returns, from the validation losses so far, whether weight averaging begins. Once averaging
        has begun, validations use the averaged weights, and the training ends with the averaged weights.

    compile: whether torch.compile compiles the loss of a training step as a whole: model, head and cross-entropy.
        Validations are not compiled.
    cuda_graph: whether the steps of a launch-bound model run as one CUDA graph (`GraphedStep`) on a GPU.

    An objective of the class SelfUpdating updates its own weights, and uses only the learning rate of the optimizer.
    """

    objective: Objective | SelfUpdating

    def __init__(
        self,
        objective: Objective | SelfUpdating,
        seed: int,
        max_steps: int,
        optimizer: Callable[[nn.Module], Optimizer] | None = None,
        schedule: Callable[..., float] | None = None,
        clip_norm: float | None = None,
        epochs: float = 1.0,
        averaging: Callable[[Sequence[float]], bool] | None = None,
        compile: bool = False,
        cuda_graph: bool = True,
    ):
        super().__init__()
        self.save_hyperparameters("seed", "max_steps", "clip_norm", "epochs")
        self.objective = objective
        self.metrics: dict[str, Tensor] = {}
        self.validation: dict[str, float] = {}  # metrics of the last validation
        self._seed, self._max_steps = seed, max_steps
        self._optimizer, self._schedule, self._clip_norm = optimizer, schedule, clip_norm
        self._epoch, self._averaging = max_steps / epochs, averaging
        self._losses: list[float] = []
        self._average: Average | None = None
        self._scale: float = 1.0
        self._states: list[Any] = [None]
        self._is_sharded = False
        self._compile, self._cuda_graph = compile, cuda_graph
        self._loss: Callable[..., Any] | None = None
        self._graphed: GraphedStep | None = None
        self.automatic_optimization = not isinstance(objective, SelfUpdating)

    def configure_model(self) -> None:
        if self.sharded and not self._is_sharded:
            strategy: Any = self.trainer.strategy
            shard(self.objective, strategy.device_mesh["data_parallel"])
            self._is_sharded = True

    @property
    def sharded(self) -> bool:
        """Whether weights are sharded; if so, each process has a part, and all processes must join in any use."""
        return self._trainer is not None and isinstance(self._trainer.strategy, FullySharded)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        step, parts = self.global_step, self.trainer.accumulate_grad_batches
        part = batch_idx % parts
        seed = step_seed(self._seed, step, self.global_rank * parts + part)
        # torch.manual_seed is not used here, because it also stores the seed and a call stack for each kind of GPU that
        # is not installed.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)
        loss = None
        if isinstance(self.objective, SelfUpdating):
            self._update(self.objective, batch)
        else:
            if len(self._states) != parts:
                self._states = [None] * parts
            if self._graphed is not None:
                self.metrics, self._states[0] = self._graphed(batch, self._states[0])
            else:
                self._scale = batch.scale if isinstance(batch, Scaled) else 1.0
                loss, self.metrics, state = self._loss_of(self.objective)(batch, self._states[part], step)
                self._states[part] = map_tensors(torch.Tensor.detach, state)
        trainer: Any = self.trainer  # mypy does not know the Trainer's flags
        every = trainer.log_every_n_steps
        if every and (step + 1) % every == 0:
            self._log("train", self.metrics, sync_dist=True)
        return loss

    def _loss_of(self, objective: Objective) -> Callable[..., Any]:
        """Return the function that computes the loss; it is compiled after FSDP has wrapped it."""
        if self._loss is None:
            self._loss = torch.compile(objective.loss) if self._compile else objective.loss
        return self._loss

    def on_train_start(self) -> None:
        model = getattr(self.objective, "model", None)
        if self.device.type not in GRAPHED_ON or not (self._cuda_graph and getattr(model, "launch_bound", False)):
            return
        optimizer: Any = self.optimizers(use_pl_optimizer=False)
        reason = "compile=true" if self._compile else obstacle(self.objective, optimizer, self.trainer)
        if reason is None:
            self._graphed = GraphedStep(cast(CausalLM, self.objective), optimizer, self._clip_norm)
        elif self.global_rank == 0:
            print(f"steps do not run as one CUDA graph: {reason}", file=sys.stderr, flush=True)

    def _update(self, objective: SelfUpdating, batch: Any) -> None:
        optimizer: Any = self.optimizers()
        schedule: Any = self.lr_schedulers()
        lr = optimizer.param_groups[0]["lr"]
        self.metrics = objective.update(batch, self.global_step, lr, self._sum)
        optimizer.step()  # without gradients, this call only counts the step
        schedule.step()

    def _sum(self, tensor: Tensor) -> Tensor:
        return self.trainer.strategy.reduce(tensor, reduce_op="sum") if self.trainer.world_size > 1 else tensor

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        # Lightning's gradient_clip_val is not used, because it rejects fused optimizers under mixed precision.
        if self._clip_norm is not None:
            plugin = self.trainer.precision_plugin
            if isinstance(plugin, MixedPrecision) and plugin.scaler is not None and _unscales(optimizer):
                plugin.scaler.unscale_(optimizer)  # Lightning leaves unscaling to fused optimizers
            torch.nn.utils.clip_grad_norm_(self.objective.parameters(), self._clip_norm)
        for group in optimizer.param_groups:
            group["lr"] *= self._scale  # for this step only: LambdaLR starts from the initial rate again

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        if self._graphed is not None:
            optimizer_closure()  # the training step itself updates the weights
        else:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self._average is not None:
            self._average.update()

    def validated(self, losses: list[float]) -> None:
        """Store the validation losses so far, on which schedules and averaging depend."""
        self._losses = losses
        if self._averaging is not None and self._average is None and self._averaging(losses):
            self._average = Average(self.objective)

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that gives the objective the averaged weights, if averaging has begun."""
        return contextlib.nullcontext() if self._average is None else self._average.applied()

    def finish(self) -> None:
        """Copy the averaged weights into the objective, if averaging has begun."""
        if self._average is not None:
            self._average.apply()

    def setup(self, stage: str) -> None:
        if stage == "fit":
            use_faster_products(self.objective)
        self._has_loggers = not isinstance(self.trainer.logger, PointLogger)

    def on_validation_start(self) -> None:
        self._begin("validation")

    def on_test_start(self) -> None:
        self._begin("test")

    def on_predict_start(self) -> None:
        self._begin("prediction")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._results.append(self._measured(batch))
        if batch_idx + 1 == self.trainer.num_val_batches[0]:
            self.validation = self._compute()
            self._log("validation", self.validation)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._results.append(self._measured(batch))
        if batch_idx + 1 == self.trainer.num_test_batches[0]:
            self._log("test", self._compute())

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the Measure's results for a batch, such as predictions or log-probabilities of tokens."""
        return self._measured(batch)

    def on_validation_epoch_end(self) -> None:
        self._applied.close()

    def on_test_epoch_end(self) -> None:
        self._applied.close()

    def on_predict_epoch_end(self) -> None:
        self._applied.close()

    def on_validation_model_train(self) -> None:
        if self.trainer.state.fn == "fit":  # modules with frozen parts keep the frozen parts in eval mode
            self.train()

    def _begin(self, split: str) -> None:
        trainer: Any = self.trainer
        measure: Measure | None = getattr(trainer.datamodule, split, None)
        if measure is None:
            raise UsageError(f"no measure for {split}; give the Trainer datamodule=Data(batches, {split}=…)")
        self._applied = contextlib.ExitStack()
        self._applied.enter_context(self.averaged())
        if self.sharded:
            shared = cast(FSDPModule, self.objective)
            shared.unshard()  # gather weights outside blocks; FSDP does this only in registered methods
            self._applied.callback(shared.reshard)
        self._measure = measure
        self._measure_step, self._results = measure.step(self.objective), list[Any]()

    def _measured(self, batch: Any) -> Any:
        if batch is None:
            return None
        if self.trainer.state.fn != "fit":
            return self._measure_step(batch)
        with torch.autocast(self.device.type, enabled=False):  # full precision, as in the benchmarks
            return self._measure_step(batch)

    def _compute(self) -> dict[str, float]:
        """Compute the metrics from the results of all processes."""
        results, self._results = self._results, []
        return self._measure.compute([results] if self.sharded else all_gather(results))

    def _log(self, stage: str, metrics: Mapping[str, Any], **settings: Any) -> None:
        """Log metrics to callbacks and loggers. In `fit`, loggers only get the learning curve."""
        named = {f"{stage}/{name}": value for name, value in metrics.items()}
        self.log_dict(named, logger=self._has_loggers, batch_size=1, **settings)

    def configure_optimizers(self) -> Any:
        if self._optimizer is None or self._schedule is None:
            raise UsageError("a Training needs an optimizer and a schedule to train; give Training both")
        optimizer, schedule = self._optimizer(self.objective), self._schedule

        def factor(step: int) -> float:
            return schedule(step, self._epoch, self._max_steps, self._losses)

        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store validation losses, averaged weights, and the recurrent states of all processes in a checkpoint.

        Lightning calls this method in all processes, and the first process writes the file.
        """
        states = tuple(self._states)
        if self.trainer.world_size > 1:
            states = tuple(map_tensors(self.all_gather, state) for state in states)
        checkpoint["carried_state"] = states
        checkpoint["losses"] = self._losses
        if self._average is not None:
            checkpoint["average"] = self._average.steps, self._average.whole()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        def own_part(tensor: Tensor) -> Tensor:
            return (tensor[self.global_rank] if self.trainer.world_size > 1 else tensor).to(self.device)

        if self._trainer is not None:  # without a trainer, the module is only measured and needs no recurrent state
            self._states = [map_tensors(own_part, state) for state in checkpoint["carried_state"]]
        self._losses = checkpoint["losses"]
        if "average" in checkpoint:
            self._average = Average(self.objective)
            self._average.take(*checkpoint["average"])


def all_gather(own_results: list[Any]) -> list[list[Any]]:
    """Return the results of all processes, in the order of their ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own_results]
    results: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(results, own_results)
    return results


def _unscales(optimizer: Optimizer) -> bool:
    """Check whether the optimizer itself divides gradients by the loss scale."""
    return bool(vars(optimizer).get("_step_supports_amp_scaling"))


def step_seed(*parts: int) -> int:
    """Return a 63-bit seed that is a hash of the given numbers."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1
