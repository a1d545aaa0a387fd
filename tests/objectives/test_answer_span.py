import pytest
import torch

from retable.data.questions import PassageExample, QuestionExample, pad_passages, pad_questions
from retable.models.bert import BERT
from retable.models.bidaf import BiDAF
from retable.models.bilstm import BiLSTM
from retable.models.gpt import GPT
from retable.objectives.answer_span import AnswerSpan, best_spans
from retable.objectives.states import states_of

WORDS = [f"w{i}" for i in range(9)]
EXAMPLES = [
    QuestionExample([1, 2, 3, 4, 5, 6], [7], 2, 4),
    QuestionExample([3, 8], [1, 2, 3, 4], 1, 1),
    QuestionExample([5, 4, 3, 2, 1], [6, 6, 8], 0, 4),
]


def test_the_loss_is_that_of_both_ends():
    torch.manual_seed(0)
    objective = AnswerSpan(BiDAF(9, WORDS, 5, 3, [(2, 4)], n_highway=1, d_hidden=6, dropout=0.0), 0.0)
    batch = pad_questions(EXAMPLES, range(3))
    padding = torch.arange(6) >= batch.context_lengths[:, None]
    batch = batch._replace(context_ids=batch.context_ids.masked_fill(padding, 7))
    start, end = (logits.softmax(1) for logits in objective(batch))
    rows = range(3)
    expected = -(start[rows, batch.first].log() + end[rows, batch.last].log()).mean()
    loss, metrics, state = objective.loss(batch, None, 0)
    torch.testing.assert_close(loss, expected)
    assert metrics == {"loss": loss.detach()} and state is None
    assert not start[padding].any() and not end[padding].any()


def test_best_spans_equal_a_search_over_all():
    generator = torch.Generator().manual_seed(0)
    start, end = (torch.randn(50, 7, generator=generator) for _ in range(2))
    lengths = torch.randint(1, 8, (50,), generator=generator)
    padding = torch.arange(7) >= lengths[:, None]
    start, end = start.masked_fill(padding, -torch.inf), end.masked_fill(padding, -torch.inf)
    first, last = best_spans(start, end)
    for row, length in enumerate(lengths.tolist()):
        spans = [(i, j) for i in range(length) for j in range(i, length)]
        assert (first[row].item(), last[row].item()) == max(spans, key=lambda s: start[row, s[0]] + end[row, s[1]])


PASSAGES = [
    PassageExample([7, 1, 8, 2, 3, 4, 5, 0], 3, [3, 5, 6], [4, 5, 6], 0, 1),
    PassageExample([7, 8, 6, 0], 2, [2], [2], 0, 0),
]


ENCODERS = {
    "bert": lambda: BERT(9, 8, 1, 2, 12, 0.0),
    "gpt": lambda: GPT(9, 8, 1, 2, 12, 0.0),
    "bilstm": lambda: BiLSTM(9, 6, 8, 1, 0.0),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoders_words_start_by_their_first_token_and_end_by_their_last(kind):
    torch.manual_seed(0)
    objective = AnswerSpan(ENCODERS[kind](), 0.0).eval()
    padded = pad_passages(PASSAGES, range(2))
    assert padded.segments.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1, 1]]
    start, end = objective(padded)
    assert start.shape == end.shape == (2, 3) and start[1, 1:].isneginf().all() and end[1, 1:].isneginf().all()
    hidden = states_of(objective.model, padded.input_ids, padded.lengths, padded.segments)
    torch.testing.assert_close(start[0], objective.start(hidden[0, [3, 5, 6]])[:, 0])
    torch.testing.assert_close(end[0], objective.end(hidden[0, [4, 5, 6]])[:, 0])
    assert objective.predict(padded)[1].tolist() == [0, 0]
