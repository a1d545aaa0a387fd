"""Sentence encoders: one vector per text, pooled from the states of a BERT (Reimers and Gurevych 2019, section 3).

The library sentence-transformers defines the poolings and the files in which checkpoints store them.

n texts, B texts of a batch, T tokens, D d_model.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.models.base import MarkedEncoder
from retable.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "max", "first", "last"]

CHUNK = 1024  # number of texts that are tokenized and sorted by length together
BATCH_TOKENS = 1024  # number of tokens of a batch, with padding


class PooledEncoder:
    """A BERT whose last states are pooled to one vector per text.

    Args:
        model: the BERT, with trained weights.
        tokenizer: the tokenizer of the BERT, which has the marks [CLS] and [SEP].
        pooling: the mean or the maximum over all tokens of a text, including the marks, or the state of the first token
            ([CLS]) or of the last token. In sentence-transformers, these poolings are called mean, max, cls and
            lasttoken.
        normalize: scale vectors to length 1.
        max_length: maximum number of tokens, including the marks. Longer texts are cut at the end, without a warning.

    Raises: UsageError: the tokenizer lacks a mark, or `max_length` is out of range.
    """

    def __init__(
        self, model: MarkedEncoder, tokenizer: Tokenizer, pooling: Pooling, normalize: bool, max_length: PositiveInt
    ):
        if missing := [mark for mark in ("[CLS]", "[SEP]") if mark not in tokenizer.special_ids]:
            raise UsageError(f"the tokenizer of the sentence encoder has no mark {missing[0]}; use a BERT's tokenizer")
        longest = model.max_length or max(max_length, 3)
        if not 3 <= max_length <= longest:
            raise UsageError(f"encoder.max_length={max_length} is out of range; write 3 to {longest}")
        self.model, self.tokenizer = model.eval(), tokenizer
        self.pooling, self.normalize, self.max_length = pooling, normalize, max_length
        pooled = f"{pooling} token" if pooling in ("first", "last") else f"{pooling} over tokens"
        self.protocol = f"{pooled}, at most {max_length} tokens"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector per text, (n, D) float32. An empty text consists of the two marks only.

        Texts are read in chunks and batches, so the memory does not grow with n, except for the result.
        """
        vectors = np.empty((len(texts), self.model.d_model), dtype=np.float32)
        for start in range(0, len(texts), CHUNK):
            rows = self._rows(texts[start : start + CHUNK])
            order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # texts of similar length need little padding
            while order:
                size = max(BATCH_TOKENS // len(rows[order[-1]]), 1)
                order, batch = order[:-size], order[-size:]
                vectors[[start + i for i in batch]] = self._pooled([rows[i] for i in batch])
        return vectors

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        first, last = (self.tokenizer.special_ids[mark] for mark in ("[CLS]", "[SEP]"))
        return [[first, *ids[: self.max_length - 2], last] for ids in self.tokenizer.encode_batch(list(texts))]

    @torch.inference_mode()
    def _pooled(self, rows: Sequence[list[int]]) -> np.ndarray:
        device = self.model.embedding.weight.device
        lengths = torch.tensor([len(row) for row in rows], device=device)
        padded = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(device)
        vectors = self._pool(self.model(padded, lengths), lengths)
        if self.normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return vectors.float().cpu().numpy()

    def _pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """Pool states, (B, T, D), of which each text has `lengths`, (B,), to vectors, (B, D)."""
        padding = torch.arange(hidden.shape[1], device=hidden.device) >= lengths[:, None]
        match self.pooling:
            case "mean":
                return hidden.masked_fill(padding[:, :, None], 0.0).sum(dim=1) / lengths[:, None]
            case "max":
                return hidden.masked_fill(padding[:, :, None], float("-inf")).amax(dim=1)
            case "first":
                return hidden[:, 0]
            case "last":
                return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
