"""C12: hierarchical softmax of a language model (Morin and Bengio 2005, "Hierarchical Probabilistic Neural Network
Language Model", section 3) over a Huffman tree (Mikolov et al. 2013b, section 2.1).

Departure: the tree is the code of words that are as frequent as Zipf's law has them by their ids, whose probability
falls with 1 / (id + 1). So it follows from the vocabulary's size, and weights can be read without the text.

N tokens, D d_model, V vocabulary, L inner nodes on the longest path.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt
from retable.models.base import LeftToRight
from retable.nn.cross_entropy import row_chunks
from retable.objectives.base import PartlyRead
from retable.objectives.causal_lm import CausalLM
from retable.objectives.hierarchical_softmax import huffman


class HierarchicalLM(CausalLM, PartlyRead):
    """A word's probability is that of its way down a binary tree: at an inner node with logit s it takes branch d with
    probability σ((1 − 2d)·s). A token costs as many logits as its way is long, about log₂ V.

    For ids that fall in frequency; with others, ways are longer and the distribution is one all the same.
    """

    _nodes: Tensor
    _signs: Tensor

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        projection: NonNegative = 0.0,
    ):
        if tie:
            raise UsageError(
                "a tree's inner nodes are no words, whose vectors it could share; write objective.tie=false"
            )
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        self.head = nn.Linear(model.d_model, vocab_size - 1, bias=bias)  # a row an inner node
        self.head.apply(model.initialise)
        frequencies = 1 / np.arange(1, vocab_size + 1)
        nodes, codes, _ = huffman(frequencies)
        self._mean_length = float(np.average((nodes >= 0).sum(axis=1), weights=frequencies))
        # Behind a word's way stands the root with sign 0.
        self.register_buffer("_nodes", torch.from_numpy(nodes).long().clamp(min=0), persistent=False)  # (V, L)
        self.register_buffer("_signs", torch.from_numpy((1 - 2 * codes) * (nodes >= 0)), persistent=False)

    def unread_weights(self) -> float:
        """The rows of inner nodes off a word's way, of words as frequent as the tree has them."""
        nodes, D = self.head.weight.shape
        return (nodes - self._mean_length) * D

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return -self._log_prob_of(hidden, labels).mean()

    def log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        chunks = row_chunks(hidden, self._nodes.shape[1] * hidden.shape[1])
        return torch.cat([self._log_prob_of(hidden[rows], labels[rows]) for rows in chunks])

    def _log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        nodes, signs = self._nodes[labels], self._signs[labels]  # (N, L)
        with torch.autocast(hidden.device.type, enabled=False):
            scores = (F.embedding(nodes, self.head.weight) @ hidden.float()[:, :, None]).squeeze(2)
            if self.head.bias is not None:
                scores = scores + self.head.bias[nodes]
            return (F.logsigmoid(signs * scores) * signs.abs()).sum(dim=1)

    def log_softmax(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            scores = self.head(hidden.float())  # (N, V − 1)
            total = scores.new_zeros(len(hidden), len(self._nodes))
            for nodes, signs in zip(self._nodes.T, self._signs.T, strict=True):  # from the root down, of all words
                total += F.logsigmoid(signs * scores[:, nodes]) * signs.abs()
        return total
