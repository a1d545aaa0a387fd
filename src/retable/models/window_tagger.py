"""The window approach to tagging: a convolution over words.

Collobert et al. 2011, "Natural Language Processing (Almost) from Scratch", section 3.3.1. A word's state is computed by
a linear layer and HardTanh from the word vectors of a window. The linear layer is the same for all windows, so it is a
convolution along the sentence. The objective adds the top linear layer and the loss: a softmax per word (section 3.4.1)
or, with `crf=true`, the sentence's likelihood under transition scores (section 3.4.2). A trained vector, PADDING, fills
half a window before and after each sentence.

Departures:
- With `filters`, a convolution over characters reads the spelling of words, as in Santos and Zadrozny 2014, whose
  tagger is otherwise the same. Collobert et al. use vectors for capitalisation (`d_capitals`) and, for parts of
  speech, vectors for suffixes.
- Marks of a sentence's start and end separate the sentence from PADDING, as in the other taggers.
- The model has dropout.

B batch, T time, D d_model, I the width of the input.

System F5 of docs/systems.yaml.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.dropout import Dropout
from retable.nn.word_input import WordInput


class WindowTagger(Encoder):
    """An encoder with one hidden state per word, which depends on a window around this word.

    Args:
        vocab_size, words, unknown, filters, folds_case, d_capitals: see WordInput.
        window: number of words in a window, the paper's d_win; must be odd.
        d_model: the paper's number of hidden units.
        dropout: rate on the convolution's input and on its output.
    """

    reads_words = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: NonNegativeInt,
        filters: Sequence[tuple[PositiveInt, PositiveInt]],
        window: PositiveInt,
        d_model: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
        folds_case: bool = False,
        d_capitals: NonNegativeInt = 0,
    ):
        super().__init__()
        if window % 2 == 0:
            raise UsageError(f"model.window={window} has no middle word; write an odd number, such as 5")
        if bool(d_character) != bool(filters):
            raise UsageError(
                f"model.d_character={d_character} and model.filters={[*map(list, filters)]} contradict each other; "
                "write both, as in model.d_character=30 model.filters=[[3,30]], or model.d_character=0 model.filters=[]"
            )
        self.d_model = d_model
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters, folds_case, d_capitals)
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
        """Return hidden states (B, T, D) for ids (B, T), which are padded after each row's length."""
        beyond = torch.arange(input_ids.shape[1], device=input_ids.device) >= lengths[:, None]
        words = self.input(input_ids).where(~beyond[:, :, None], self.padding)  # (B, T, I)
        edge = self.padding.expand(len(words), self.convolution.kernel_size[0] // 2, -1)
        padded = self.dropout(torch.cat([edge, words, edge], dim=1))
        return self.dropout(F.hardtanh(self.convolution(padded.mT)).mT)
