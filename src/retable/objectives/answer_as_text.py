"""Answers as text: an encoder reads a question and its context, and a decoder writes the answer.

Raffel et al. 2020, section 2.4 and appendix D.15.

Shapes: B batch, S inputs, U tokens of an answer, with its end mark.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from retable.data.pairs import PairBatch
from retable.models.base import EncoderDecoder
from retable.objectives.text_to_text import TextToText

LONGEST = 32  # maximum number of tokens of an answer, including the end mark


class AnswerAsText(TextToText):
    """A text-to-text objective whose targets are answers with an end mark.

    read: converts the ids that the decoder writes, (LONGEST,), to text.
    """

    def __init__(self, model: EncoderDecoder, vocab_size: int, tie: bool, read: Callable[[list[int]], str]):
        super().__init__(model, vocab_size, tie)
        self.read = read

    def loss(self, batch: PairBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """Compute the loss: the mean nats per token of the correct answers."""
        before = batch.target_ids.clone()
        before[:, 0] = self.start_id
        return super().loss(batch._replace(target_ids=before), state, step)

    def predict(self, batch: PairBatch) -> list[str]:
        """Write an answer for each row, choosing the most probable token at each step."""
        return [self.read(ids) for ids in self.most_likely(batch.source_ids, batch.source_lengths, LONGEST).tolist()]
