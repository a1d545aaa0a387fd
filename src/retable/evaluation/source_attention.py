"""What a translator looks at of the source with each word that it writes.

Models with one attention to the source show it themselves. Those of many layers and heads mix values without showing
their weights, so these are computed again from what goes into the last layer's: the mean over its heads.

B batch, S time of the source, U time of the target, H heads, K head size.
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

CROSSING = ("cross_attention", "crossing")  # what layers of decoders call their attention to the source


def crossings(model: EncoderDecoder) -> list[Attention]:
    """The attention of each layer of a decoder to the source; none where it has no such layers."""
    named = model.named_modules()
    return [part for name, part in named if isinstance(part, Attention) and name.rpartition(".")[2] in CROSSING]


def attends(model: EncoderDecoder) -> bool:
    """Whether it looks at the source."""
    return model.aligns or bool(crossings(model))


@torch.inference_mode()
def attention_to_source(objective: Translation, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """(U, S): the share of its attention that each step of the target gives to each token of the source. UsageError for
    a model without attention to the source."""
    model = objective.eval().model
    if model.aligns:
        return align(objective, source, target)
    if not attends(model):
        raise UsageError(f"{type(model).__name__} looks back at nothing of the source; take one with an attention")
    device = next(objective.parameters()).device
    batch = pad([source], [target], np.array([0]))
    ids = (batch.source_ids, batch.source_lengths, batch.target_ids)
    return cross_attention(model, *(tensor.to(device) for tensor in ids))[0].cpu().numpy()


def cross_attention(model: EncoderDecoder, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
    """(B, S) sources, padded behind their lengths (B,), and (B, U) targets so far to the weights (B, U, S) of the last
    layer's attention, whose rows sum to 1."""
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
