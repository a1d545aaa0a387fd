"""Hierarchical softmax (Morin and Bengio 2005) over a Huffman tree (Mikolov et al. 2013b, section 2.1).

Shapes: R rows, C predictors per row, J targets per row, D d_model, V vocabulary, L inner nodes on the longest path.
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
    """The loss −log p(o | v); p is the product of the branch probabilities on the path of word o in a binary tree.

    At inner node n, branch d (0 or 1) has the probability σ((1 − 2d)·u_n·v), as in word2vec.c. The probabilities of all
    words sum to 1.

    counts: number of occurrences of each word, (V,), from which the tree is built. A word with count 0 is not in the
    tree.

    Raises: UsageError: a count is negative, or all counts are 0.
    """

    _nodes: Tensor
    _codes: Tensor

    def __init__(self, model: WindowModel, counts: ArrayLike) -> None:
        counts = np.asarray(counts)
        if counts.min() < 0 or counts.max() == 0:
            raise UsageError("counts for hierarchical softmax are negative or all 0; pass the counts of a text's words")
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
    """Build the Huffman (1952) code of the words with count > 0.

    Returns: the inner nodes on the path from the root to each word, int32 (V, L), padded with −1; the branch that the
        path takes at each of these nodes, int8 (V, L); and the number of inner nodes on each path, int32 (V,).

    Inner nodes are numbered from 0 in the order of their creation; the root is created last. When two nodes are joined,
    the rarer node gets branch 0. Among equally rare nodes, words come before inner nodes, words with higher ids before
    words with lower ids, and older inner nodes before newer ones.
    """
    leaves = np.flatnonzero(counts)
    leaves = leaves[np.lexsort((-leaves, counts[leaves]))]  # words, the rarest first
    n = len(leaves)
    parent, branch = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.int8)
    # Inner nodes are created in rising order of weight. So the rarest node is always the next node of one of two
    # queues: the sorted words, and the inner nodes.
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
