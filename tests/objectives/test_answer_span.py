import pytest
import torch

from retable.data.questions import PassageExample, QuestionBatch, QuestionExample, pad_passages, pad_questions
from retable.models.base import Model
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


def reading(dropout: float = 0.0) -> AnswerSpan:
    torch.manual_seed(0)
    return AnswerSpan(BiDAF(9, WORDS, 5, 3, [(2, 4)], n_highway=1, d_hidden=6, dropout=dropout), dropout)


def batch() -> QuestionBatch:
    """With noise behind the rows' lengths."""
    padded = pad_questions(EXAMPLES, range(3))
    context, question = (
        ids.where(torch.arange(ids.shape[1]) < lengths[:, None], 7)
        for ids, lengths in (
            (padded.context_ids, padded.context_lengths),
            (padded.question_ids, padded.question_lengths),
        )
    )
    return padded._replace(context_ids=context, question_ids=question)


def test_the_loss_is_that_of_both_ends():
    objective = reading()
    start, end = (logits.softmax(1) for logits in objective(batch()))
    rows = range(3)
    expected = -(start[rows, batch().first].log() + end[rows, batch().last].log()).mean()
    loss, metrics, state = objective.loss(batch(), None, 0)
    torch.testing.assert_close(loss, expected)
    assert metrics == {"loss": loss.detach()} and state is None
    half, _, _ = objective.loss(batch()._replace(weight=0.5), None, 0)
    assert half.item() == pytest.approx(loss.item() / 2)
    assert not start[1, 2:].any() and not end[1, 2:].any()  # padding


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


def encoder(kind: str) -> Model:
    torch.manual_seed(0)
    match kind:
        case "bert":
            return BERT(9, 8, 1, 2, 12, 0.0)
        case "gpt":
            return GPT(9, 8, 1, 2, 12, 0.0)
        case _:
            return BiLSTM(9, 6, 8, 1, 0.0)


@pytest.mark.parametrize("kind", ["bert", "gpt", "bilstm"])
def test_an_encoders_words_start_by_their_first_token_and_end_by_their_last(kind):
    objective = AnswerSpan(encoder(kind), 0.0).eval()
    padded = pad_passages(PASSAGES, range(2))
    assert padded.segments.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1, 1]]
    start, end = objective(padded)
    assert start.shape == end.shape == (2, 3) and start[1, 1:].isneginf().all() and end[1, 1:].isneginf().all()
    hidden = states_of(objective.model, padded.input_ids, padded.lengths, padded.segments)
    torch.testing.assert_close(start[0], objective.start(hidden[0, [3, 5, 6]])[:, 0])
    torch.testing.assert_close(end[0], objective.end(hidden[0, [4, 5, 6]])[:, 0])
    alone = [objective.loss(pad_passages(PASSAGES, [row]), None, 0)[0] for row in range(2)]
    torch.testing.assert_close(objective.loss(padded, None, 0)[0], torch.stack(alone).mean())
    assert objective.predict(padded)[1].tolist() == [0, 0]
