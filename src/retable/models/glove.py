"""GloVe word vectors (Pennington et al. 2014, "GloVe: Global Vectors for Word Representation").

The objective, `WeightedLeastSquares`, contains the paper's context vectors w̃ and context biases b̃.

D d_model, V vocabulary.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.models.base import CooccurrenceModel


class GloVe(CooccurrenceModel):
    """A vector w and a bias b per word, fitted to co-occurrence counts X: w_i·w̃_j + b_i + b̃_j ≈ log X_ij."""

    def __init__(self, words: Sequence[str], d_model: PositiveInt) -> None:
        super().__init__()
        self.d_model = d_model
        self.word, self.word_bias = nn.Embedding(len(words), d_model), nn.Embedding(len(words), 1)
        self.word.apply(self.initialise)
        self.word_bias.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw weights and biases uniformly within ±0.5/D, as GloVe's code does."""
        for parameter in module.parameters():
            nn.init.uniform_(parameter, -0.5 / self.d_model, 0.5 / self.d_model)

    def vectors(self) -> Tensor:
        """Return the word vectors w (V, D), without gradient.

        A method of the objective computes the paper's sum w + w̃.
        """
        return self.word.weight.detach()
