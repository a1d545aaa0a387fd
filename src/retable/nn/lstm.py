"""LSTM layers (Hochreiter and Schmidhuber 1997, with forget gates) that are fast in bf16 on a CPU.

One matrix product transforms the inputs of all steps, and another computes the gradient of the input weights. Each step
needs only a product of a few rows with the recurrent weights, and one pass over the gates. The layout of the recurrent
weights is prepared once. PyTorch's backward pass, by oneDNN, takes 50 ms for 35 steps of 20 rows with 650 units. The
backward pass here takes 15 ms (benchmarks/language_models.md).

T time, B batch, I input, H hidden.
"""

import warnings
from typing import Any

import torch
from torch import _VF, Tensor, nn

from retable.nn import fused
from retable.nn.dropout import drop
from retable.nn.product import prepacked

NARROW = 256  # lowest number of units for the fast method; with fewer, torch's LSTM is as fast


class LSTM(nn.LSTM):
    """An LSTM with the parameters of torch's LSTM and, except for rounding, the same results.

    The fast method is used under autocast to bf16 on a CPU, if the input has more than one step. The layers must have
    one direction, at least NARROW units, biases, and no projection. In all other cases torch's method is used. The fast
    method returns cell states in fp32 and hidden states in bf16.

    On a GPU, layers with dropout between them are computed one after the other, because a CUDA graph cannot replay the
    random state of cuDNN's dropout. A new seed of this state would also make the CPU wait.
    """

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        """Return the same results as torch's LSTM; a PackedSequence is not accepted."""
        if input.is_cuda and self.training and self.dropout and self.num_layers > 1:
            return self._layer_by_layer(input, hx)
        kind, steps = input.device.type, input.shape[1 if self.batch_first else 0]
        narrow = torch.is_autocast_enabled(kind) and fused.serves(input.device, torch.get_autocast_dtype(kind))
        plain = self.bias and not self.bidirectional and not self.proj_size and self.hidden_size >= NARROW
        if not (narrow and plain and steps > 1 and torch.backends.mkldnn.is_available()):
            return super().forward(input, hx)
        hidden = input.transpose(0, 1) if self.batch_first else input
        if hx is None:
            nothing = input.new_zeros(self.num_layers, hidden.shape[1], self.hidden_size, dtype=torch.float32)
            hx = (nothing, nothing)
        ends = []
        for i, (h, c) in enumerate(zip(*hx, strict=True)):
            weights = [getattr(self, f"{name}_l{i}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            hidden, end = _Layer.apply(hidden, h, c, *weights)
            ends.append((hidden[-1], end))
            if i + 1 < self.num_layers:
                hidden = drop(hidden, self.dropout, self.training)
        h, c = (torch.stack(parts) for parts in zip(*ends, strict=True))
        return hidden.transpose(0, 1) if self.batch_first else hidden, (h, c)

    def _layer_by_layer(self, hidden: Tensor, hx: tuple[Tensor, Tensor] | None) -> Any:
        """Compute each layer with torch's method, and dropout between layers with `drop`."""
        if hx is None:
            n_rows, n_states = hidden.shape[0 if self.batch_first else 1], self.num_layers * (1 + self.bidirectional)
            sizes = self.proj_size or self.hidden_size, self.hidden_size
            hx = tuple(hidden.new_zeros(n_states, n_rows, size) for size in sizes)  # type: ignore[assignment]
        assert hx is not None
        n_weights, ends = len(self._flat_weights) // self.num_layers, []
        for i, state in enumerate(zip(*(part.chunk(self.num_layers) for part in hx), strict=True)):
            weights: Any = self._flat_weights[i * n_weights : (i + 1) * n_weights]
            with warnings.catch_warnings():  # the weights of all layers are in one piece of memory, not those of one
                warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
                hidden, *end = _VF.lstm(hidden, state, weights, self.bias, 1, 0.0, True, self.bidirectional,
                                        self.batch_first)  # fmt: skip
            ends.append(end)
            if i + 1 < self.num_layers:
                hidden = drop(hidden, self.dropout)
        h, c = (torch.cat(parts) for parts in zip(*ends, strict=True))
        return hidden, (h, c)


class _Layer(torch.autograd.Function):
    """One LSTM layer: maps inputs (T, B, I), initial states and weights to states (T, B, H) and final cell states.

    The weights are (4H, I) and (4H, H), the biases (4H,), the initial states and the final cell states (B, H).
    """

    @staticmethod
    def forward(ctx, inputs: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, b: Tensor, b_u: Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            inputs, narrow_w, narrow_u, bias = inputs.bfloat16(), w.bfloat16(), u.bfloat16(), (b + b_u).float()
            T, B, H = *inputs.shape[:2], u.shape[1]
            gates = (inputs.flatten(0, 1) @ narrow_w.mT).view(T, B, 4 * H)
            hiddens, cells = gates.new_empty(T + 1, B, H), torch.empty(T + 1, B, H)
            hiddens[0], cells[0] = h, c
            recurrent = prepacked(narrow_u, B)
            for t in range(T):
                fed_back = recurrent(hiddens[t])
                fused.lstm_step_(gates[t], fed_back, bias, cells[t], cells[t + 1], hiddens[t + 1])
            ctx.save_for_backward(inputs, gates, hiddens, cells, narrow_w, narrow_u)
            ctx.types = [tensor.dtype for tensor in (h, c, w, u, b, b_u)]
            return hiddens[1:], cells[T].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_hidden: Tensor, d_last: Tensor) -> tuple[Tensor, ...]:
        inputs, gates, hiddens, cells, w, u = ctx.saved_tensors
        gates, d_cell = gates.clone(), d_last.float().clone()
        above, later = d_hidden.bfloat16().contiguous(), torch.zeros_like(hiddens[0])
        recurrent = prepacked(u.mT.contiguous(), len(later))
        for t in reversed(range(len(gates))):
            fused.lstm_step_slopes_(gates[t], cells[t], cells[t + 1], above[t], later, d_cell)
            later = recurrent(gates[t])
        slopes = gates.flatten(0, 1)
        d_inputs = (slopes @ w).view_as(inputs)
        d_w, d_u = slopes.mT @ inputs.flatten(0, 1), slopes.mT @ hiddens[:-1].flatten(0, 1)
        d_bias = slopes.float().sum(0)
        gradients = (later, d_cell, d_w, d_u, d_bias, d_bias)
        return d_inputs, *(each.to(dtype) for each, dtype in zip(gradients, ctx.types, strict=True))
