"""A neural network and a maximum-entropy model under one softmax.

Mikolov, Deoras, Povey, Burget and Černocký 2011, "Strategies for Training Large Scale Neural Network Language Models";
RNNME in Mikolov's toolkit. A word's logit is the model's logit plus the weights of the n-grams that the word would
complete. N-grams are not stored. An n-gram's history (all words except the last) is hashed to a place in one table of
weights. From the history's place on, the table contains the weights of all words of the vocabulary after the history.
Different histories with the same place share weights.

Departure from the paper: a history's place is a multiple of 64, so that weights are looked up and trained 64 at a time.

Shapes: B batch, T time, N = B·T, D d_model, V vocabulary.

System C11 of docs/systems.yaml.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt
from retable.data.streams import TokenBatch
from retable.models.base import LeftToRight
from retable.nn.cross_entropy import logits_of, row_chunks
from retable.objectives.causal_lm import CausalLM

BLOCK = 64  # number of weights that are looked up together
MULTIPLIER = 0x1B873593CC9E2D51  # odd, so that different histories stay different modulo 2^64


class MaxEntropyLM(CausalLM):
    """A causal LM whose logits include weights of n-grams, with n from 2 to `order`.

    The weights of unigrams are the softmax's bias. `table_size` is the total number of n-gram weights, which are
    initialised to 0. Like a recurrent state, the history continues from batch to batch and across sentences. The
    history is empty before a stream's first token.
    """

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        order: PositiveInt,
        table_size: PositiveInt,
        projection: NonNegative = 0.0,
    ):
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        if order < 2:
            raise UsageError(f"n-grams of order {order} have no history to hash; write objective.order=2 or more")
        self.order, self.vocab_size = order, vocab_size
        self.blocks = -(-vocab_size // BLOCK)  # blocks per history
        if table_size < self.blocks * BLOCK:
            raise UsageError(
                f"a table of {table_size} weights is too small for {vocab_size} words; write about "
                f"objective.table_size={1000 * self.blocks * BLOCK}"
            )
        self.features = nn.Embedding(table_size // BLOCK, BLOCK)
        nn.init.zeros_(self.features.weight)

    def loss(self, batch: TokenBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        hidden, places, state = self._read(batch.input_ids, batch.state(state))
        nats = F.cross_entropy(self._logits(hidden.flatten(0, 1), places.flatten(0, 1)), batch.labels.flatten())
        return self.penalised(nats, batch.labels.shape[1]), {"loss": nats.detach()}, state

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        hidden, places, state = self._read(input_ids, state)
        hidden, places, flat = hidden.flatten(0, 1), places.flatten(0, 1), labels.flatten()
        parts = [
            -F.cross_entropy(self._logits(hidden[rows], places[rows]), flat[rows], reduction="none")
            for rows in row_chunks(hidden, self.vocab_size)
        ]
        return torch.cat(parts).view_as(labels), state

    def next_log_prob(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, places, state = self._read(input_ids, state)
        return torch.log_softmax(self._logits(hidden[:, -1], places[:, -1]), dim=1), state

    def _read(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Return hidden states (B, T, D), the indices of the histories' first blocks (B, T, order − 1), and a state.

        The state consists of the model's state and the last order − 2 ids, (1, B, order − 2); ids before the first
        token are −1.
        """
        nothing = input_ids.new_full((1, len(input_ids), self.order - 2), -1)
        inner, before = state if state else (state, nothing)
        hidden, inner = self.model(input_ids, inner)
        ids = torch.cat([before[0], input_ids], dim=1)
        places, hashed = [], torch.zeros_like(input_ids)
        for age in range(self.order - 1):  # histories of one word, then of two words, and so on
            start = self.order - 2 - age
            hashed = (hashed + ids[:, start : start + input_ids.shape[1]] + 1) * MULTIPLIER
            places.append((hashed >> 20).remainder(self.features.num_embeddings))
        after = ids[None, :, ids.shape[1] - (self.order - 2) :]
        return self.projection(hidden), torch.stack(places, dim=2), (inner, after)

    def _logits(self, hidden: Tensor, places: Tensor) -> Tensor:
        """Compute logits (N, V), fp32, from hidden states (N, D) and block indices (N, order − 1)."""
        offsets = torch.arange(self.blocks, device=places.device)[:, None]
        rows = (places[:, None] + offsets).remainder(self.features.num_embeddings)  # (N, blocks, order − 1)
        weights = F.embedding_bag(rows.flatten(0, 1), self.features.weight, mode="sum")  # (N · blocks, 64)
        of_ngrams = weights.view(len(hidden), -1)[:, : self.vocab_size]
        return logits_of(hidden, self.head.weight.to(hidden.dtype), self.head.bias) + of_ngrams
