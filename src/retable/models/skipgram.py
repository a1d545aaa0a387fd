"""Skip-gram word vectors (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.2).

The paper's hierarchical softmax is an objective, and objectives stand apart.
"""

from torch import Tensor, nn


class SkipGram(nn.Module):
    """Two vectors a word: v where it is the centre, u where it is in another's window. A pair's score is u·v.

    sparse: gradients with rows for the words of the batch only, for vocabularies where a dense gradient of
        vocab_size × d_model costs more than the rest of the step. The optimizer must know such gradients:
        plain SGD that is not fused, Adagrad, SparseAdam.
    """

    def __init__(self, vocab_size: int, d_model: int, sparse: bool = False) -> None:
        super().__init__()
        self.centre = nn.Embedding(vocab_size, d_model, sparse=sparse)
        self.context = nn.Embedding(vocab_size, d_model, sparse=sparse)
        # As in word2vec.c: while u = 0 every pair has probability one half, and v decides where it goes.
        nn.init.uniform_(self.centre.weight, -0.5 / d_model, 0.5 / d_model)
        nn.init.zeros_(self.context.weight)

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Ids (...) of centre words and ids (...) of context words to their v and u, (..., d_model) each."""
        return self.centre(centres), self.context(contexts)

    def vectors(self) -> Tensor:
        """The words' vectors (vocab_size, d_model), without gradient: v, as word2vec gives out."""
        return self.centre.weight.detach()
