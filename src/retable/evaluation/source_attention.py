"""The attention to the source text, for each token that a translation model writes.

Models with a single attention layer return the weights of this layer. Models with several layers and heads use fused
attention, which returns no weights. For models with fused attention, the weights of the last layer are computed again
from this layer's inputs, and averaged over heads.

Dimensions: B batch, S time of the source, U time of the target, H heads, K head size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.pairs import pad
from retable.evaluation.translation import align
from retable.models.base import EncoderDecoder
from retable.nn.attention import Attention, padding_mask
from retable.objectives.translation import Translation

CROSSING = ("cross_attention", "crossing")  # names under which decoder layers store their cross-attention


def crossings(model: EncoderDecoder) -> list[Attention]:
    """Return the cross-attention of each decoder layer, or [] for a decoder without attention."""
    named = model.named_modules()
    return [part for name, part in named if isinstance(part, Attention) and name.rpartition(".")[2] in CROSSING]


def attends(model: EncoderDecoder) -> bool:
    """Check whether the model attends to the source."""
    return model.aligns or bool(crossings(model))


@torch.inference_mode()
def attention_to_source(objective: Translation, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Compute, for each target step, the share of attention to each source token, (U, S).

    Raises: UsageError: the model does not attend to the source.
    """
    model = objective.eval().model
    if model.aligns:
        return align(objective, source, target)
    if not attends(model):
        raise UsageError(f"{type(model).__name__} has no attention to the source; use a model with attention")
    device = next(objective.parameters()).device
    batch = pad([source], [target], np.array([0]), objective.start_id)
    ids = (batch.source_ids, batch.source_lengths, batch.target_ids)
    return cross_attention(model, *(tensor.to(device) for tensor in ids))[0].cpu().numpy()


def cross_attention(model: EncoderDecoder, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
    """Compute the attention weights of the last layer, averaged over heads, (B, U, S).

    Rows sum to 1.

    Args:
        source_ids: (B, S), padded after each row's length.
        source_lengths: (B,).
        target_ids: (B, U).
    """
    attention = crossings(model)[-1]
    projected: dict[nn.Module, Tensor] = {}

    def keep(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        projected[layer] = output

    hooks = [layer.register_forward_hook(keep) for layer in (attention.query, attention.key_value)]
    try:
        model(source_ids, source_lengths, target_ids)
    finally:
        for hook in hooks:
            hook.remove()
    halves = projected[attention.query], projected[attention.key_value].chunk(2, dim=2)[0]
    queries, keys = (half.unflatten(2, (attention.n_heads, -1)).transpose(1, 2) for half in halves)  # (B, H, ·, K)
    scale = keys.shape[3] ** -0.5 if attention.scale is None else attention.scale
    scores = scale * queries @ keys.mT
    seen = padding_mask(source_lengths, source_ids.shape[1])
    return scores.masked_fill(~seen, -torch.inf).softmax(dim=3).mean(dim=1)
