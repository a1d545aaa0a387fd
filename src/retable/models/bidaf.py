"""BiDAF, a reader with attention from a paragraph to a question and back.

Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension", arXiv 1611.01603, section 2. In each text,
character and word embeddings pass through a highway network and a contextual LSTM. The next layers are attention
between the texts, two modelling LSTM layers, and one more LSTM for the answer's end. The softmaxes over positions are
part of the objective.

The paper uses GloVe vectors of lower-case words, which let the model recognise words of the question in the context.
With random initial vectors, a few thousand questions are too few to learn to recognise words. In this case the options
`folds_case` and `matches` help the model to find words of the question in the context. With `elmo`, the layers of a
pretrained ELMo are mixed into one vector per word. This vector is concatenated with the highway network's output
(Peters et al. 2018, arXiv 1802.05365, section 3.3).

Departures: a tanh follows the max-pooling of the character convolution, and characters have no dropout
(nn/character_cnn.py). Highway gates are initially closed. An ELMo reads a whole paragraph as one sequence.

B batch, T time of the context, J time of the question, H d_hidden (the paper's 2d, both directions together).

System F4 of docs/systems.yaml.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from retable.core.settings import Filters, NonNegativeInt, PositiveInt, Rate
from retable.models.base import Reader
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.character_cnn import Highway
from retable.nn.dropout import Dropout
from retable.nn.scalar_mix import ScalarMix
from retable.nn.word_input import WordInput, folded


class BiDAF(Reader):
    """A reader that maps the word ids of a context and a question to states that score the answer's start and end.

    Args:
        vocab_size, words, unknown, filters, folds_case: see WordInput.
        dropout: rate on the input of every LSTM layer.
        matches: whether to mark each word that occurs in both texts; see Matches.
        elmo: function that creates an ELMo from `words`. If `frozen` is true, the ELMo's weights are fixed and its
            dropout is off.
    """

    reads_words = True
    d_model: int  # width of the states, 5H

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        filters: Filters,
        n_highway: NonNegativeInt,
        d_hidden: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
        folds_case: bool = False,
        matches: bool = False,
        elmo: Callable[..., Any] | None = None,
        frozen: bool = True,
    ):
        super().__init__()
        self.d_model, self.frozen = 5 * d_hidden, frozen and elmo is not None
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters, folds_case)
        self.highway = nn.Sequential(*(Highway(self.input.d_output) for _ in range(n_highway)))
        self.matches = Matches(words) if matches else None
        self.elmo = elmo(words=words).requires_grad_(not frozen).train(not frozen) if elmo else None
        d_input = self.input.d_output + 2 * matches
        if self.elmo is not None:
            self.mix = ScalarMix(len(self.elmo.forward_stack.layers) + 1)
            d_input += 2 * self.elmo.d_model
        self.contextual = BidirectionalLSTM(d_input, d_hidden)
        self.attention = AttentionFlow(d_hidden)
        self.modelling = BidirectionalLSTM(4 * d_hidden, d_hidden, 2, dropout)
        self.end = BidirectionalLSTM(d_hidden, d_hidden)
        self.dropout = Dropout(dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {} if self.elmo is None else {"": self.elmo}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def train(self, mode: bool = True) -> "BiDAF":
        super().train(mode)
        if self.elmo is not None and self.frozen:
            self.elmo.eval()
        return self

    def forward(
        self, context_ids: Tensor, context_lengths: Tensor, question_ids: Tensor, question_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the paper's states [G; M] and [G; M²], (B, T, 5H) each, for a context (B, T) and a question (B, J).

        Context and question are ids, padded after each row's length.
        """
        context = self._read(context_ids, context_lengths, question_ids, question_lengths)
        question = self._read(question_ids, question_lengths, context_ids, context_lengths)
        attended = self.attention(context, question, context_lengths, question_lengths)  # G
        modelled = self.modelling(self.dropout(attended), context_lengths)  # M
        ending = self.end(self.dropout(modelled), context_lengths)  # M²
        return torch.cat([attended, modelled], dim=2), torch.cat([attended, ending], dim=2)

    def _read(self, ids: Tensor, lengths: Tensor, other_ids: Tensor, other_lengths: Tensor) -> Tensor:
        """Return states (B, T, H) of the ids (B, T) of a text, given the other text's ids; states of padding are 0."""
        words = self.highway(self.input(ids))
        if self.elmo is not None:
            words = torch.cat([words, self.mix(self.elmo.layers(ids, lengths), lengths)], dim=2)
        words = self.dropout(words)
        if self.matches is not None:
            words = torch.cat([words, self.matches(ids, other_ids, other_lengths)], dim=2)
        return self.contextual(words, lengths)


class Matches(nn.Module):
    """Marks of words that also occur in the other text: one mark for equal spelling, one with letter case ignored.

    The marks are the "exact match" features of Chen et al. 2017, section 3.2, without the authors' third feature, equal
    lemmas. `words` lists the spellings of all ids.
    """

    _folded: Tensor

    def __init__(self, words: Sequence[str]):
        super().__init__()
        self.register_buffer("_folded", folded(words), persistent=False)

    def forward(self, ids: Tensor, other_ids: Tensor, other_lengths: Tensor) -> Tensor:
        """Return two marks (B, T, 2) for each of ids (B, T): 1 if `other_ids` (B, J) contain the word, otherwise 0."""
        real = torch.arange(other_ids.shape[1], device=ids.device) < other_lengths[:, None]
        pairs = ((ids, other_ids), (self._folded[ids], self._folded[other_ids]))
        matches = [((own[:, :, None] == other[:, None]) & real[:, None]).any(dim=2) for own, other in pairs]
        return torch.stack(matches, dim=2).float()


class AttentionFlow(nn.Module):
    """Attention from the context to the question and back: G = [h; ũ; h ∘ ũ; h ∘ h̃] (equations 1 to 4).

    ũ is the mean of the question's states, weighted by their similarity to a context word. h̃ is the mean of the
    context's states, weighted by their highest similarity to a question word.
    """

    def __init__(self, d_hidden: int):
        super().__init__()
        self.similarity = nn.Linear(3 * d_hidden, 1, bias=False)

    def forward(self, context: Tensor, question: Tensor, context_lengths: Tensor, question_lengths: Tensor) -> Tensor:
        """Return G (B, T, 4H) from the states of a context (B, T, H) and of a question (B, J, H)."""
        in_context = torch.arange(context.shape[1], device=context.device) < context_lengths[:, None]
        in_question = torch.arange(question.shape[1], device=question.device) < question_lengths[:, None]
        # Compute w · [h; u; h ∘ u] of all pairs (h, u) as a sum of three terms, which avoids a tensor (B, T, J, 3H).
        of_context, of_question, of_both = self.similarity.weight[0].chunk(3)
        similarity = (context @ of_context)[:, :, None] + (question @ of_question)[:, None]
        similarity = similarity + (context * of_both) @ question.mT  # (B, T, J)
        similarity = similarity.masked_fill(~in_question[:, None], -torch.inf)
        asked = similarity.softmax(dim=2) @ question  # ũ: (B, T, H)
        salience = similarity.amax(dim=2).masked_fill(~in_context, -torch.inf).softmax(dim=1)  # (B, T)
        salient = salience[:, None] @ context  # h̃: (B, 1, H), the same for all context words
        return torch.cat([context, asked, context * asked, context * salient], dim=2)
