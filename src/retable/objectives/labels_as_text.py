"""Labels as text: an encoder reads an example, and a decoder writes its label (Raffel et al. 2020, section 2.4).

Shapes: B batch, T inputs, A answers, U tokens of the longest answer, with its end mark.
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
    """A text-to-text objective for examples whose labels are indices of `answers`.

    The loss is −log p(answer), averaged over examples like the loss of a classifier. In the paper, the loss is averaged
    over all tokens.

    Args:
        answers: token ids of the A possible answers, each with an end mark.
        read: converts the ids that the decoder writes, (U,), to the prediction.
    """

    answers: Tensor  # (A, U)
    before: Tensor  # (A, U): the decoder's inputs for the answers
    sizes: Tensor  # (A,): lengths of the answers

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
        """Return the examples as pairs of sequences; the target of an example is the text of its label."""
        before, sizes, answers = (table[batch.labels] for table in (self.before, self.sizes, self.answers))
        return PairBatch(batch.input_ids, batch.lengths, before, sizes, answers)

    def loss(  # type: ignore[override]  # batches contain labels, not texts
        self, batch: ExampleBatch, state: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean over examples of −log p(answer), in nats."""
        loss = -self.log_prob(self.pairs(batch)).mean() * batch.weight
        return loss, {"loss": loss.detach()}, None

    def write(self, batch: ExampleBatch) -> Tensor:
        """Write U tokens for each example, (B, U), choosing the most probable token at each step.

        No answer is longer than U tokens.
        """
        return self.most_likely(batch.input_ids, batch.lengths, self.answers.shape[1])

    def predict(self, batch: ExampleBatch) -> Tensor:
        """Write a text for each example, and return the label that `read` finds in each text, (B,)."""
        return torch.from_numpy(np.array([self.read(ids) for ids in self.write(batch).tolist()]))
