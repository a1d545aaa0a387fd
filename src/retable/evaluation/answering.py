"""Answers predicted for questions."""

from collections.abc import Sequence

import torch
from torch import nn

from retable.data.questions import QuestionExample, QuestionInWords, questions_by_length
from retable.evaluation.held_out import on_device


@torch.inference_mode()
def predict_answers(
    objective: nn.Module,
    questions: Sequence[QuestionInWords],
    examples: Sequence[QuestionExample],
    batch_size: int = 64,
) -> dict[str, str]:
    """The best answer to each question by its id, in their order, as its paragraph writes it: SQuAD's own format of
    predictions. `examples` are the questions as the objective's model reads them."""
    spans = torch.zeros(len(examples), 2, dtype=torch.int64)
    device = next(objective.parameters()).device
    for places, batch in questions_by_length(examples, batch_size):
        spans[places] = torch.stack(objective.predict(on_device(device, batch)), dim=1).cpu()  # type: ignore[operator]
    return {
        question.source.id: question.text(first, last)
        for question, (first, last) in zip(questions, spans.tolist(), strict=True)
    }
