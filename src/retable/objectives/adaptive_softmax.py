"""C12: adaptive softmax (Grave, Joulin, Cissé, Grangier and Jégou 2017, "Efficient softmax approximation for GPUs",
section 4).

N tokens, D d_model, V vocabulary.
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
    """A short list of frequent words beside clusters of rarer ones; a word's probability is its own in the short list,
    or its cluster's times its own in the cluster.

    The ids fall in frequency; `cutoffs` are those at which the clusters begin. Cluster i, from 1 on, is predicted
    through a bottleneck of D / `division`^i dimensions. `bias` is of the short list and the clusters themselves.
    """

    head: Any  # not the linear layer of a CausalLM

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
            raise UsageError("an adaptive softmax has no weights of the embedding's shape; write objective.tie=false")
        if not cutoffs or cutoffs != sorted({*cutoffs}) or not 0 < cutoffs[0] <= cutoffs[-1] < vocab_size:
            raise UsageError(
                f"cutoffs={cutoffs} are no ids that rise from above 0 to below the vocabulary's {vocab_size}; "
                f"write for example objective.cutoffs=[{vocab_size // 5},{vocab_size // 2}]"
            )
        if model.d_model < division ** len(cutoffs):
            raise UsageError(
                f"division={division} leaves nothing of d_model={model.d_model} for cluster {len(cutoffs)}; "
                "lower objective.division or list fewer objective.cutoffs"
            )
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        self.head = nn.AdaptiveLogSoftmaxWithLoss(model.d_model, vocab_size, cutoffs, division, head_bias=bias)
        self.head.apply(model.initialise)
        self.count(np.ones(vocab_size))

    def count(self, counts: ArrayLike) -> None:
        """Take in the words' counts (V,). UsageError where a cluster's words are more frequent than the last's."""
        parts = np.split(np.asarray(counts), self.head.cutoffs[:-1])
        means = [part.mean() for part in parts]
        if means != sorted(means, reverse=True):
            raise UsageError(
                "the words of later clusters are not the rarer ones; an adaptive softmax needs ids that fall in "
                "frequency, as those of tokenizer=word do"
            )
        self._shares = [part.sum() / np.sum(counts) for part in parts[1:]]

    def unread_weights(self) -> float:
        """The matrices of clusters that a word is not of, of words as frequent as they were counted."""
        sizes = [sum(layer.weight.numel() for layer in tail) for tail in self.head.tail]
        return float(sum((1 - share) * size for share, size in zip(self._shares, sizes, strict=True)))

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return -self.log_prob_of(hidden, labels).mean()

    def log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):  # under which torch's layer mixes two types
            return self.head(hidden.float(), labels).output

    def log_softmax(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head.log_prob(hidden.float())
