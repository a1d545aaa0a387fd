"""Likelihoods, translations and alignments of a trained encoder-decoder.

Dimensions: U time of the target, S time of the source.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from retable.data.batches import LazyBatches, in_order, share
from retable.data.bucketed import on_device
from retable.data.pairs import PairBatch, Sequences, pad, pairs_by_length
from retable.generation.conditioned import Conditioned
from retable.generation.strategy import Strategy
from retable.objectives.translation import Translation


class NatsPerToken:
    """Measures the mean nats per target token of held-out sentence pairs, during training.

    Each token is scored given the source and the earlier target tokens.
    """

    def __init__(self, sources: Sequences, targets: Sequences, max_tokens: int):
        self._sources, self._targets, self._max_tokens = sources, targets, max_tokens

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        places = pairs_by_length(self._sources, self._targets, self._max_tokens)
        return share(places, partial(pad, self._sources, self._targets), rank, world)

    def step(self, objective: Translation) -> Callable[[PairBatch], tuple[float, int]]:
        device = next(objective.parameters()).device

        @torch.inference_mode()
        def measure(batch: PairBatch) -> tuple[float, int]:
            _, metrics, _ = objective.loss(on_device(device, batch), None, 0)
            n_tokens = int(batch.target_lengths.sum())
            return metrics["loss"].item() * n_tokens, n_tokens

        return measure

    def compute(self, measured: Sequence[Sequence[tuple[float, int]]]) -> dict[str, float]:
        nats, n_tokens = zip(*in_order(measured), strict=True)
        return {"loss": float(np.cumsum(nats)[-1]) / sum(n_tokens)}


def translate(objective: Translation, sources: Sequences, strategy: Strategy, end: int) -> list[list[int]]:
    """Return the best translation of each source, without its end mark.

    Args:
        end: id of the end mark, with which sources and translations end.
    """
    completions = strategy(Conditioned(objective, end), sources, eos=end)
    return [best.ids[:-1] if best.ids[-1] == end else best.ids for best, *_ in completions]


@torch.inference_mode()
def align(objective: Translation, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Compute, for each target step, the share of attention to each source token, (U, S)."""
    device = next(objective.parameters()).device
    batch = pad([source], [target], np.array([0]))
    ids = (batch.source_ids, batch.source_lengths, batch.target_ids)
    return objective.eval().model.align(*(tensor.to(device) for tensor in ids))[0].cpu().numpy()
