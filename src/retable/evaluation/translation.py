"""What a trained encoder-decoder makes of sentences: likelihoods, translations, alignments.

U time of the target, S time of the source.
"""

from collections.abc import Sequence

import numpy as np
import torch

from retable.data.bucketed import on_device
from retable.data.pairs import Sequences, pad, pairs_by_length
from retable.generation.conditioned import Conditioned
from retable.generation.strategy import Strategy
from retable.objectives.translation import Translation


@torch.inference_mode()
def nats_per_token(objective: Translation, sources: Sequences, targets: Sequences, max_tokens: int) -> float:
    """The mean −log p of a target token given its source and the target before it."""
    device, total = next(objective.parameters()).device, 0.0
    for batch in pairs_by_length(sources, targets, max_tokens):
        _, metrics, _ = objective.loss(on_device(device, batch), None, 0)
        total += metrics["loss"].item() * int(batch.target_lengths.sum())
    return total / sum(map(len, targets))


def translate(objective: Translation, sources: Sequences, strategy: Strategy, end: int) -> list[list[int]]:
    """The best translation of each source, which ends with the mark `end`; the translations come without it."""
    found = strategy(Conditioned(objective, end), sources, eos=end)
    return [best.ids[:-1] if best.ids[-1] == end else best.ids for best, *_ in found]


@torch.inference_mode()
def align(objective: Translation, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """(U, S): the share of its attention that each step of the target gives to each token of the source."""
    device = next(objective.parameters()).device
    batch = pad([source], [target], np.array([0]))
    ids = (batch.source_ids, batch.source_lengths, batch.target_ids)
    return objective.eval().model.align(*(tensor.to(device) for tensor in ids))[0].cpu().numpy()
