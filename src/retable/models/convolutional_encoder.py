"""The convolutional sentence encoder (Kim 2014, arXiv 1408.5882, section 2).

The encoder of "Convolutional Neural Networks for Sentence Classification" with one channel. Word vectors are fine-tuned
("non-static"), or fixed with `freeze_embedding=true`. As in the author's code, width − 1 zero vectors precede and
follow the sentence. Therefore even the shortest sentence fills a window, and each word is in the same number of
windows.

Departures: dropout also acts on the word vectors. (The objective applies dropout to the features, as in the paper.)
AdamW's weight decay replaces the paper's bound on the norms of the last layer's rows.

B batch, T time, E d_embedding, F features of all widths.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate, Sizes
from retable.models.base import SequenceEncoder
from retable.nn.dropout import Dropout


class ConvolutionalEncoder(SequenceEncoder):
    """An encoder whose features are each the maximum of relu(w · x_{i:i+h−1} + b) over all windows of h words.

    widths: the widths h of the windows; there are `n_features` features of each width.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        widths: Sizes,
        n_features: PositiveInt,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model, self.widths = len(widths) * n_features, list(widths)
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.dropout = Dropout(dropout)
        self.filters = nn.ModuleList(nn.Conv1d(d_embedding, n_features, width) for width in widths)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode ids (B, T), padded after each row's length, as one vector per sequence, (B, F)."""
        words = self.dropout(self.embedding(input_ids))
        padding = torch.arange(input_ids.shape[1], device=input_ids.device) >= lengths[:, None]
        words = words.masked_fill(padding[:, :, None], 0.0).mT  # (B, E, T)
        maxima = []
        for width, convolve in zip(self.widths, self.filters, strict=True):
            features = convolve(F.pad(words, (width - 1, width - 1)))  # (B, n_features, T + width − 1)
            beyond = torch.arange(features.shape[2], device=words.device) >= lengths[:, None] + width - 1
            maxima.append(features.masked_fill(beyond[:, None], float("-inf")).amax(dim=2))
        return torch.cat(maxima, dim=1).relu()
