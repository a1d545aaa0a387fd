"""Training steps of recurrent networks as one CUDA graph: forward, backward, clipping and update.

A step of an LSTM consists of some 500 short kernels, which Python starts one by one. A graph starts all of them at
once: on an H200 a step of the medium LSTM takes 1.97 ms as a graph, and 5.79 ms in a plain loop.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from retable.data.batches import Scaled
from retable.nn.lstm import LSTM
from retable.objectives.causal_lm import CausalLM

WARMING = 3  # steps before recording: memory, optimizer states and cuBLAS's workspaces must exist by then
HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")


def obstacle(objective: nn.Module, optimizer: Optimizer, trainer: Any) -> str | None:
    """Return the reason why the steps of a training cannot be recorded, or None if they can."""
    if type(objective) is not CausalLM:
        return f"objective {type(objective).__name__} has sizes that depend on values"
    for layers in objective.model.modules():
        if isinstance(layers, nn.RNNBase) and layers.dropout and not isinstance(layers, LSTM):
            return f"cuDNN draws the dropout between the layers of {type(layers).__name__}, outside torch's generator"
    if not (isinstance(optimizer, SGD | Adam) and optimizer.defaults["fused"]):
        return f"optimizer {type(optimizer).__name__} cannot read its rate from the GPU"
    if not isinstance(trainer.strategy, SingleDeviceStrategy) or trainer.accumulate_grad_batches > 1:
        return "the strategy is for several processes, or a batch has several parts"
    if str(trainer.precision).startswith("16"):
        return f"precision {trainer.precision} scales the loss by values"
    for callback in trainer.callbacks:
        for hook in HOOKS:
            if getattr(type(callback), hook).__module__ != "lightning.pytorch.callbacks.callback":
                return f"callback {type(callback).__name__} acts within the step ({hook})"
    return None


class GraphedStep:
    """A training step that is recorded once and then replayed.

    The first form of batch and carried state that occurs twice in succession is recorded, after WARMING steps. A form
    consists of the shapes and data types of tensors, and of all other values, such as whether an epoch begins. A step
    of another form runs kernel by kernel, with the same results. The recorded kernels read the batch, the carried
    state and the learning rates from fixed addresses, where each call first copies them. Random numbers depend on the
    seed of the GPU's generator at the call, as in a step without a graph.

    Args:
        record: records the kernels that a function starts, and returns a function that starts the same kernels again.
    """

    def __init__(
        self,
        objective: CausalLM,
        optimizer: Optimizer,
        clip_norm: float | None,
        record: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
    ):
        self._objective, self._optimizer, self._clip_norm = objective, optimizer, clip_norm
        self._device = next(objective.parameters()).device
        self._rates = [torch.zeros((), device=self._device) for _ in optimizer.param_groups]
        self._record = record or recorded
        self._form: Any = None  # the form that is recorded
        self._before: Any = None  # the form of the last step
        self._inputs: Any = None  # the batch and the state that the graph reads
        self._metrics: dict[str, Tensor] = {}
        self._replay: Callable[[], None] | None = None
        self._warmed, self._reported = 0, False

    def __call__(self, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        """Train on a batch, and return its metrics and the next state; a later call overwrites this state."""
        scale = 1.0
        if isinstance(batch, Scaled):
            scale, batch = batch.scale, cast(Any, batch)._replace(scale=1.0)
        for rate, group in zip(self._rates, self._optimizer.param_groups, strict=True):
            rate.fill_(group["lr"] * scale)
        form, before = _form((batch, state)), self._before
        self._before = form
        if self._form is None and form == before:
            self._form, self._inputs = form, map_tensors(torch.empty_like, (batch, state))
        if form != self._form:
            self._report(batch)
            return self._step(batch, state)
        _copy(self._inputs, (batch, state))
        if self._warmed < WARMING:
            self._warmed += 1
            with _aside(self._device):
                self._metrics, state = self._step(*self._inputs)
            return self._metrics, state
        if self._replay is None:
            self._replay = self._record(self._in_place)
        self._replay()
        return {name: value.clone() for name, value in self._metrics.items()}, self._inputs[1]

    def _in_place(self) -> None:
        """Compute a step, and write its metrics and its next state to fixed addresses."""
        metrics, state = self._step(*self._inputs)
        for name, value in metrics.items():
            self._metrics[name].copy_(value)
        _copy(self._inputs[1], state)

    def _step(self, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        loss, metrics, state = self._objective.loss(batch, state, 0)  # CausalLM does not use the number of the step
        with torch.autocast(self._device.type, enabled=False):  # Lightning computes only the loss under autocast
            self._optimizer.zero_grad()
            loss.backward()
            if self._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._objective.parameters(), self._clip_norm)
            with self._rates_on_device():
                self._optimizer.step()
        return metrics, map_tensors(Tensor.detach, state)

    @contextlib.contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """Let the optimizer read its rates from tensors; checkpoints contain the schedule's numbers instead."""
        groups = self._optimizer.param_groups
        kept = [dict(group) for group in groups]
        recording = self._device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        for group, rate in zip(groups, self._rates, strict=True):
            group |= {"lr": rate} | ({"capturable": recording} if "capturable" in group else {})
        try:
            yield
        finally:
            for group, before in zip(groups, kept, strict=True):
                group.update(before)

    def _report(self, batch: Any) -> None:
        """Print a line about the first batch whose shapes differ from those of the recorded batch."""
        if self._form is None or self._reported:
            return
        ours, recorded = ([tuple(tensor.shape) for tensor in _tensors(each)] for each in (batch, self._inputs[0]))
        if ours != recorded:
            self._reported = True
            print(
                f"a batch has the shapes {ours}, the recorded CUDA graph {recorded}; such steps run without the graph",
                file=sys.stderr,
                flush=True,
            )


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply a function to each tensor in nested tuples; other values are not changed."""
    if isinstance(value, Tensor):
        return function(value)
    if not isinstance(value, tuple):
        return value
    parts = [map_tensors(function, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(found.append, value)
    return found


def _form(value: Any) -> Any:
    """Return the shapes and data types of the tensors in nested tuples, and all other values."""
    return map_tensors(lambda tensor: (tuple(tensor.shape), tensor.dtype), value)


def _copy(fixed: Any, value: Any) -> None:
    for own, other in zip(_tensors(fixed), _tensors(value), strict=True):
        if own is not other:
            own.copy_(other)


def recorded(function: Callable[[], None]) -> Callable[[], None]:
    """Record the GPU's work of a function as a CUDA graph; return a function that does this work again."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


@contextlib.contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Use another stream than the default one, which a graph cannot be recorded in."""
    if device.type != "cuda":
        yield
        return
    default, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    aside.wait_stream(default)
    with torch.cuda.stream(aside):
        yield
    default.wait_stream(aside)
