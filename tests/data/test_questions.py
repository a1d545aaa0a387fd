import torch

from retable.data.questions import QuestionExample, pad_questions

EXAMPLES = [QuestionExample([5, 6, 7, 8], [1, 2], 1, 3), QuestionExample([4], [3, 2, 1], 0, 0)]


def test_rows_are_padded_to_the_longest_of_the_batch():
    batch = pad_questions(EXAMPLES, [1, 0])
    assert batch.context_ids.tolist() == [[4, 0, 0, 0], [5, 6, 7, 8]]
    assert batch.question_ids.tolist() == [[3, 2, 1], [1, 2, 0]]
    assert (batch.context_lengths.tolist(), batch.question_lengths.tolist()) == ([1, 4], [3, 2])
    assert (batch.first.tolist(), batch.last.tolist(), batch.weight) == ([0, 1], [0, 3], 1.0)
    assert {part.dtype for part in batch[:6]} == {torch.int64}
