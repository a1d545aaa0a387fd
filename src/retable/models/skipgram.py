"""Skip-gram word vectors (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.2).

Departures from the paper: none in the model. The paper's output layer, a hierarchical softmax, is an objective here.
"""

from torch import Tensor, nn


class SkipGram(nn.Module):
    """Two vectors a word: v as a centre word, u as a context word. The score of a pair is u·v.

    sparse: make the gradients of both tables sparse, for vocabularies so large that a dense gradient of
        `vocab_size` × `d_model` a step costs more than the step; the optimizer must then know sparse gradients
        (SGD without momentum, Adagrad without weight decay, SparseAdam).
    """

    def __init__(self, vocab_size: int, d_model: int, sparse: bool = False) -> None:
        super().__init__()
        self.centre = nn.Embedding(vocab_size, d_model, sparse=sparse)
        self.context = nn.Embedding(vocab_size, d_model, sparse=sparse)
        # As word2vec.c does: with u = 0 every pair starts at a probability of one half, whatever v is.
        nn.init.uniform_(self.centre.weight, -0.5 / d_model, 0.5 / d_model)
        nn.init.zeros_(self.context.weight)

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Ids (...) of centre words and ids (...) of context words → their v (..., D) and their u (..., D)."""
        return self.centre(centres), self.context(contexts)

    def vectors(self) -> Tensor:
        """The word vectors (V, D) that word2vec publishes: the centre table, without gradient."""
        return self.centre.weight.detach()
