"""F5: the body of the window approach's tagger, a convolution over words (Collobert et al. 2011, "Natural Language
Processing (Almost) from Scratch", section 3.3.1).

A word's tag is told from a window of vectors round it, by a linear layer and HardTanh: one convolution along the
sentence. The linear layer on top and the training are the objective's, a softmax a word (section 3.4.1) or, with
`crf=true`, the sentence's likelihood under scores of transitions (section 3.4.2). Half a window of PADDING, a vector
that is learnt, stands before a sentence and behind it.

Departures: of a word's spelling a convolution over its characters is read (Santos and Zadrozny 2014, whose tagger is
else the same), where the paper has tables of capitals and suffixes; marks of a sentence's ends stand before PADDING, as
for the other taggers; there is dropout.

B batch, T time, D d_model, I the width of the input.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import Filters, NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.dropout import Dropout
from retable.nn.word_input import WordInput


class WindowTagger(Encoder):
    """Word ids to a hidden state for each word, which has read a window round it.

    vocab_size, words, unknown, filters: see WordInput.
    window: how many words a state has read, the paper's d_win, an odd number.
    d_model: the paper's number of hidden units.
    dropout: on the convolution's input and on its output.
    """

    spelt = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        filters: Filters,
        window: PositiveInt,
        d_model: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
    ):
        super().__init__()
        if window % 2 == 0:
            raise UsageError(f"model.window={window} has no word in its middle; write an odd number, such as 5")
        self.d_model = d_model
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters)
        self.padding = nn.Parameter(torch.randn(self.input.d_output) * d_embedding**-0.5)
        self.convolution = nn.Conv1d(self.input.d_output, d_model, window)
        self.dropout = Dropout(dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) ids, padded behind each row's length, to (B, T, D) hidden states."""
        beyond = torch.arange(input_ids.shape[1], device=input_ids.device) >= lengths[:, None]
        words = self.input(input_ids).where(~beyond[:, :, None], self.padding)  # (B, T, I)
        edge = self.padding.expand(len(words), self.convolution.kernel_size[0] // 2, -1)
        padded = self.dropout(torch.cat([edge, words, edge], dim=1))
        return self.dropout(F.hardtanh(self.convolution(padded.mT)).mT)
