"""Adaptive softmax (Grave, Joulin, Cissé, Grangier and Jégou 2017, section 4).

"Efficient softmax approximation for GPUs".

Shapes: N tokens, D d_model, V vocabulary.

System C12 of docs/systems.yaml.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, Positive, PositiveInt
from retable.models.base import LeftToRight
from retable.objectives.base import CountsWords, PartlyRead
from retable.objectives.causal_lm import CausalLM


class AdaptiveSoftmax(CausalLM, CountsWords, PartlyRead):
    """A softmax over a short list of frequent words and over clusters of rarer words.

    The probability of a rare word is its cluster's probability times the word's probability within the cluster. Ids
    must be sorted by falling frequency.

    Args:
        cutoffs: the first word id of each cluster, in ascending order.
        division: the i-th cluster, counted from 1, is predicted through a bottleneck of D / `division`^i dimensions.
        bias: whether the logits of the short list and of the clusters have a bias.
    """

    head: Any  # an nn.AdaptiveLogSoftmaxWithLoss; in CausalLM, the head is a linear layer

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        cutoffs: Sequence[PositiveInt],
        division: Positive,
        projection: NonNegative = 0.0,
    ):
        cutoffs = list(cutoffs)
        if tie:
            raise UsageError("an adaptive softmax cannot share the embedding's weights; write objective.tie=false")
        if not cutoffs or cutoffs != sorted({*cutoffs}) or not 0 < cutoffs[0] <= cutoffs[-1] < vocab_size:
            raise UsageError(
                f"cutoffs={cutoffs} must be ascending ids above 0 and below the vocabulary size {vocab_size}; "
                f"write for example objective.cutoffs=[{vocab_size // 5},{vocab_size // 2}]"
            )
        if model.d_model < division ** len(cutoffs):
            raise UsageError(
                f"division={division} leaves no dimension of d_model={model.d_model} for cluster {len(cutoffs)}; "
                "lower objective.division or list fewer objective.cutoffs"
            )
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        self.head = nn.AdaptiveLogSoftmaxWithLoss(model.d_model, vocab_size, cutoffs, division, head_bias=bias)
        self.head.apply(model.initialise)
        self.count(np.ones(vocab_size))

    def count(self, counts: ArrayLike) -> None:
        """Set the number of occurrences of each word, (V,).

        Raises: UsageError: the words of a later cluster are more frequent on average than the words of an earlier
            cluster.
        """
        parts = np.split(np.asarray(counts), self.head.cutoffs[:-1])
        means = [part.mean() for part in parts]
        if means != sorted(means, reverse=True):
            raise UsageError(
                "the words of a later cluster are not rarer than the words of an earlier cluster; an adaptive softmax "
                "needs ids sorted by falling frequency, as with tokenizer=word"
            )
        self._shares = [part.sum() / np.sum(counts) for part in parts[1:]]

    def unread_weights(self) -> float:
        """Return how many weights are in clusters that do not contain a token, on average over the text's tokens."""
        sizes = [sum(layer.weight.numel() for layer in tail) for tail in self.head.tail]
        return float(sum((1 - share) * size for share, size in zip(self._shares, sizes, strict=True)))

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return -self.log_prob_of(hidden, labels).mean()

    def log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):  # under autocast, torch's layer would mix two dtypes
            return self.head(hidden.float(), labels).output

    def log_softmax(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head.log_prob(hidden.float())
