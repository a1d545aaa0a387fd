"""Likelihoods, translations and alignments of a trained encoder-decoder.

Dimensions: U time of the target, S time of the source.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from retable.data.batches import LazyBatches, in_order, share
from retable.data.bucketed import on_device
from retable.data.pairs import PairBatch, Sequences, pad
from retable.generation.conditioned import Conditioned
from retable.generation.strategy import Strategy
from retable.objectives.translation import Translation


class NatsPerToken:
    """Measures the mean nats per target token of held-out sentence pairs, during training.

    Each token is scored given the source and the earlier target tokens, or in a free-running loss the earlier output.

    Args:
        places: the indices of the pairs of each batch.
        pad: builds a batch of the pairs with the given indices.
    """

    def __init__(self, places: Sequence[np.ndarray], pad: Callable[[np.ndarray], PairBatch]):
        self._places, self._pad = places, pad

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return share(self._places, self._pad, rank, world)

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


@torch.inference_mode()
def nats_of_pairs(
    objective: Translation, places: Sequence[np.ndarray], pad: Callable[[np.ndarray], PairBatch]
) -> np.ndarray:
    """Compute the loss of each pair, (n,), in nats: −log p(target | source), or the free-running loss.

    A free-running loss is not a log-probability; see `Translation.log_prob`.

    Args:
        places: the indices of the pairs of each batch, together 0 to n − 1.
        pad: builds a batch of the pairs with the given indices.
    """
    device = next(objective.parameters()).device
    objective.eval()
    nats = np.empty(sum(map(len, places)))
    for rows in places:
        nats[rows] = -objective.log_prob(on_device(device, pad(rows))).cpu().numpy()
    return nats


def translate(objective: Translation, sources: Sequences, strategy: Strategy, end: int) -> list[list[int]]:
    """Return the best translation of each source, without its end mark.

    Args:
        end: id of the end mark, with which sources and translations end.
    """
    start = end if objective.start_id is None else objective.start_id
    completions = strategy(Conditioned(objective, start), sources, eos=end)
    return [best.ids[:-1] if best.ids[-1] == end else best.ids for best, *_ in completions]


@torch.inference_mode()
def align(objective: Translation, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Compute, for each target step, the share of attention to each source token, (U, S)."""
    device = next(objective.parameters()).device
    batch = pad([source], [target], np.array([0]), objective.start_id)
    ids = (batch.source_ids, batch.source_lengths, batch.target_ids)
    return objective.eval().model.align(*(tensor.to(device) for tensor in ids))[0].cpu().numpy()
