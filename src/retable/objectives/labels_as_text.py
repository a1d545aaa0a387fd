"""Labels as text: an encoder reads an example, a decoder writes its label (Raffel et al. 2020, section 2.4).

B batch, T inputs, A answers, U tokens of the longest, with its end mark.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.examples import ExampleBatch
from retable.data.pairs import PairBatch, pad
from retable.models.base import EncoderDecoder
from retable.objectives.text_to_text import TextToText


class LabelsAsText(TextToText):
    """Text to text, of examples whose labels are the places of their `answers` (A), the ids of texts with an end mark.

    The loss is −log p(answer), the mean over examples, as a classifier's; the paper's is the mean over all tokens.

    read: from what was written, (U,) ids, to what is predicted.
    """

    answers: Tensor  # (A, U)
    before: Tensor  # (A, U), what the decoder reads as it writes them
    sizes: Tensor  # (A,)

    def __init__(
        self,
        model: EncoderDecoder,
        vocab_size: int,
        tie: bool,
        answers: Sequence[Sequence[int]],
        read: Callable[[list[int]], float],
    ):
        super().__init__(model, vocab_size, tie)
        self.read = read
        texts = pad(answers, answers, np.arange(len(answers)))
        texts.target_ids[:, 0] = self.start_id
        for name, tensor in (("answers", texts.labels), ("before", texts.target_ids), ("sizes", texts.target_lengths)):
            self.register_buffer(name, tensor, persistent=False)

    def pairs(self, batch: ExampleBatch) -> PairBatch:
        """The examples and the texts of their labels."""
        before, sizes, answers = (table[batch.labels] for table in (self.before, self.sizes, self.answers))
        return PairBatch(batch.input_ids, batch.lengths, before, sizes, answers)

    def loss(  # type: ignore[override]  # of labels, not of texts
        self, batch: ExampleBatch, state: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean over examples of −log p(answer), in nats."""
        loss = -self.log_prob(self.pairs(batch)).mean() * batch.weight
        return loss, {"loss": loss.detach()}, None

    def write(self, batch: ExampleBatch) -> Tensor:
        """(B, U): the likeliest token each time, as many as the longest answer has: what is longer is none."""
        return self.likeliest(batch.input_ids, batch.lengths, self.answers.shape[1])

    def predict(self, batch: ExampleBatch) -> Tensor:
        """What each example's text is read as, (B,)."""
        return torch.from_numpy(np.array([self.read(ids) for ids in self.write(batch).tolist()]))
