"""F4: BiDAF, the reader that attends from a paragraph to a question and back (Seo et al. 2017, "Bidirectional Attention
Flow for Machine Comprehension", arXiv 1611.01603, section 2).

Its six layers: characters and words, with a highway network; a contextual LSTM over each side; the attention flow; two
LSTM layers of modelling; and, for the answer's end, one more LSTM. The softmaxes over places are the objective's.

Departures: the convolution's maxima pass a tanh, and there is no dropout on characters (nn/character_cnn.py); highway
gates start closed.

B batch, T time of the context, J of the question, H d_hidden (the paper's 2d, both directions together).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from retable.models.base import Reader
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.character_cnn import Highway
from retable.nn.dropout import Dropout
from retable.nn.word_input import WordInput
from retable.settings import Filters, NonNegativeInt, PositiveInt, Rate


class BiDAF(Reader):
    """A context's and a question's word ids to the states of the context that tell where an answer starts and ends.

    vocab_size, words, unknown, filters: see WordInput. dropout: on the input of every LSTM layer.
    """

    spelt = True
    d_model: int  # of the states, 5H

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
    ):
        super().__init__()
        self.d_model = 5 * d_hidden
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters)
        self.highway = nn.Sequential(*(Highway(self.input.d_output) for _ in range(n_highway)))
        self.contextual = BidirectionalLSTM(self.input.d_output, d_hidden)
        self.attention = AttentionFlow(d_hidden)
        self.modelling = BidirectionalLSTM(4 * d_hidden, d_hidden, 2, dropout)
        self.end = BidirectionalLSTM(d_hidden, d_hidden)
        self.dropout = Dropout(dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(
        self, context_ids: Tensor, context_lengths: Tensor, question_ids: Tensor, question_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(B, T) and (B, J) ids, padded behind each row's length, to the states [G; M] and [G; M²], both (B, T, 5H)."""
        context = self._read(context_ids, context_lengths)
        question = self._read(question_ids, question_lengths)
        attended = self.attention(context, question, context_lengths, question_lengths)  # G
        modelled = self.modelling(self.dropout(attended), context_lengths)  # M
        ending = self.end(self.dropout(modelled), context_lengths)  # M²
        return torch.cat([attended, modelled], dim=2), torch.cat([attended, ending], dim=2)

    def _read(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) ids to (B, T, H), zero on padding."""
        return self.contextual(self.dropout(self.highway(self.input(ids))), lengths)


class AttentionFlow(nn.Module):
    """Each word of the context with the question's words that it goes with, and with the context's that the question
    goes with: G = [h; ũ; h ∘ ũ; h ∘ h̃] (equations 1 to 4)."""

    def __init__(self, d_hidden: int):
        super().__init__()
        self.similarity = nn.Linear(3 * d_hidden, 1, bias=False)

    def forward(self, context: Tensor, question: Tensor, context_lengths: Tensor, question_lengths: Tensor) -> Tensor:
        """(B, T, H), (B, J, H) and their lengths to (B, T, 4H)."""
        in_context = torch.arange(context.shape[1], device=context.device) < context_lengths[:, None]
        in_question = torch.arange(question.shape[1], device=question.device) < question_lengths[:, None]
        # w · [h; u; h ∘ u] of all pairs, part by part: no (B, T, J, 3H) is made.
        of_context, of_question, of_both = self.similarity.weight[0].chunk(3)
        similarity = (context @ of_context)[:, :, None] + (question @ of_question)[:, None]
        similarity = similarity + (context * of_both) @ question.mT  # (B, T, J)
        similarity = similarity.masked_fill(~in_question[:, None], -torch.inf)
        asked = similarity.softmax(dim=2) @ question  # ũ: (B, T, H)
        salience = similarity.amax(dim=2).masked_fill(~in_context, -torch.inf).softmax(dim=1)  # (B, T)
        salient = salience[:, None] @ context  # h̃: (B, 1, H), the same for all words
        return torch.cat([context, asked, context * asked, context * salient], dim=2)
