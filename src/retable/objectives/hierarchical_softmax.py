"""Hierarchical softmax (Morin and Bengio 2005) over a Huffman tree (Mikolov et al. 2013b, section 2.1).

R rows, C predictors a row, J targets a row, D d_model, V vocabulary, L inner nodes on the longest path.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.models.base import WindowModel
from retable.objectives.window_prediction import WindowPrediction


class HierarchicalSoftmax(WindowPrediction):
    """−log p(o | v), where a word's probability is that of its way down a binary tree: at inner node n on the way it
    takes branch d with probability σ((1 − 2d)·u_n·v), as in word2vec.c. The probabilities of all words sum to one.

    counts: occurrences of each word (V,), from which the tree is made; a word of count 0 is not in it, and no
        outcome. UsageError where a count is negative or all are 0.
    """

    _nodes: Tensor
    _codes: Tensor

    def __init__(self, model: WindowModel, counts: ArrayLike) -> None:
        counts = np.asarray(counts)
        if counts.min() < 0 or counts.max() == 0:
            raise UsageError("hierarchical softmax needs counts of words: none below 0, and not all of them 0")
        super().__init__(model, max(int(np.count_nonzero(counts)) - 1, 1))
        self.nodes, self.codes, self.lengths = huffman(counts)
        self.register_buffer("_nodes", torch.from_numpy(self.nodes), persistent=False)
        self.register_buffer("_codes", torch.from_numpy(self.codes), persistent=False)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        nodes, codes = self._nodes[targets], self._codes[targets]  # (R, J, L)
        u = self.output(nodes.clamp(min=0)).flatten(1, 2)  # (R, J·L, D)
        scores = (hidden @ u.mT).unflatten(-1, nodes.shape[1:])  # (R, C, J, L)
        on_path = pairs[..., None] & (nodes >= 0)[:, None]
        return -(F.logsigmoid(scores * (1 - 2 * codes)[:, None]) * on_path).sum()


def huffman(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The Huffman (1952) code of the words of count > 0: the inner nodes from the root to each word, nodes (V, L) int32
    padded with −1, the branches taken there, codes (V, L) int8, and their number, lengths (V,) int32.

    Inner nodes are numbered from 0 in the order in which they are made, the root last. Of two nodes that are joined,
    the rarer gets branch 0. Ties go to words before inner nodes, then to the higher id or the older node.
    """
    leaves = np.flatnonzero(counts)
    leaves = leaves[np.lexsort((-leaves, counts[leaves]))]  # the rarest first
    n = len(leaves)
    parent, branch = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.int8)
    # Inner nodes come out in rising order of weight, so that the two rarest stand at the heads of two queues.
    weight = [*counts[leaves].tolist(), *[float("inf")] * n]
    leaf, inner = 0, n
    for new in range(n, 2 * n - 1):
        total = 0
        for bit in (0, 1):
            if leaf < n and weight[leaf] <= weight[inner]:
                rarest, leaf = leaf, leaf + 1
            else:
                rarest, inner = inner, inner + 1
            parent[rarest], branch[rarest] = new, bit
            total += weight[rarest]
        weight[new] = total
    depth = np.zeros(2 * n - 1, np.int32)
    for node in range(2 * n - 3, -1, -1):
        depth[node] = depth[parent[node]] + 1

    lengths = np.zeros(len(counts), np.int32)
    lengths[leaves] = depth[:n]
    nodes = np.full((len(counts), lengths.max()), -1, np.int32)
    codes = np.zeros(nodes.shape, np.int8)
    below, words = np.arange(n), leaves
    while len(words := words[(climbing := below < 2 * n - 2)]):
        below = below[climbing]
        nodes[words, depth[below] - 1] = parent[below] - n
        codes[words, depth[below] - 1] = branch[below]
        below = parent[below]
    return nodes, codes, lengths
