import pytest
import torch
from torch import nn

from retable.corpora.squad import Answer, Question
from retable.data.questions import QuestionExample, in_words
from retable.evaluation.answering import predict_answers


class Pointer(nn.Module):
    """Answers from the word whose place is the question's first id to that of its last."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def predict(self, batch):
        last = batch.question_ids.gather(1, batch.question_lengths[:, None] - 1)[:, 0]
        return batch.question_ids[:, 0], last


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_each_question_gets_its_own_answer_as_it_is_written(batch_size):
    contexts = ["One,  two-three.", "Four", "Five six seven eight nine"]
    spans = [(0, 3), (0, 0), (1, 4)]
    questions = in_words(Question(f"id {i}", "", context, "?", [Answer("x", 0)]) for i, context in enumerate(contexts))
    examples = [
        QuestionExample([0] * len(each.context), span, 0, 0) for each, span in zip(questions, spans, strict=True)
    ]
    found = predict_answers(Pointer(), questions, examples, batch_size)
    assert list(found.items()) == [("id 0", "One,  two-"), ("id 1", "Four"), ("id 2", "six seven eight nine")]
