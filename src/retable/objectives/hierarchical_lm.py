"""Hierarchical softmax of a language model over a Huffman tree.

Morin and Bengio 2005, "Hierarchical Probabilistic Neural Network Language Model", section 3; the tree as in Mikolov et
al. 2013b, section 2.1.

Departure from the paper: the tree is not built from counts, but from Zipf's law, with a word's frequency ∝ 1 / (id +
1). So the tree depends only on the vocabulary's size, and saved weights can be used without the training text.

Shapes: N tokens, D d_model, V vocabulary, L inner nodes on the longest path.

System C12 of docs/systems.yaml.
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
    """A softmax over a binary tree: a word's probability is the product of the branch probabilities on its path.

    At an inner node with logit s, branch d (0 or 1) has the probability σ((1 − 2d)·s). A token needs one logit for each
    inner node on its path, which has about log₂ V nodes. Ids should be sorted by falling frequency. With ids in another
    order, paths are longer, but the probabilities still sum to 1.
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
                "the softmax has vectors for the inner nodes of a tree, not for words, so it cannot share the "
                "embedding's weights; write objective.tie=false"
            )
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        self.head = nn.Linear(model.d_model, vocab_size - 1, bias=bias)  # one row per inner node
        self.head.apply(model.initialise)
        frequencies = 1 / np.arange(1, vocab_size + 1)
        nodes, codes, _ = huffman(frequencies)
        self._mean_length = float(np.average((nodes >= 0).sum(axis=1), weights=frequencies))
        # Shorter paths are padded with the root and sign 0.
        self.register_buffer("_nodes", torch.from_numpy(nodes).long().clamp(min=0), persistent=False)  # (V, L)
        self.register_buffer("_signs", torch.from_numpy((1 - 2 * codes) * (nodes >= 0)), persistent=False)

    def unread_weights(self) -> float:
        """Return the expected number of weights of nodes not on a word's path, for the tree's word frequencies."""
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
            for nodes, signs in zip(self._nodes.T, self._signs.T, strict=True):  # one level of the tree per pass
                total += F.logsigmoid(signs * scores[:, nodes]) * signs.abs()
        return total
