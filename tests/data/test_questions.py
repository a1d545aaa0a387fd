import pytest
import torch

from retable.corpora.squad import Answer, Question
from retable.data.questions import PassageExample, QuestionExample, encoded_passages, in_words, pad_questions

EXAMPLES = [QuestionExample([5, 6, 7, 8], [1, 2], 1, 3), QuestionExample([4], [3, 2, 1], 0, 0)]
CONTEXT = "In 1969–70, Ada's  “tour” cost $1.5m; née Ó Brien."


def asked(*texts: str) -> Question:
    return Question("q", "", CONTEXT, "Who's née?", [Answer(text, CONTEXT.index(text)) for text in texts])


def test_words_are_runs_of_letters_and_other_signs():
    (found,) = in_words([asked("Ada")])
    assert found.context == [
        *("In", "1969", "–", "70", ",", "Ada", "'", "s", "“", "tour", "”", "cost", "$", "1", ".", "5m", ";"),
        *("née", "Ó", "Brien", "."),
    ]
    assert [CONTEXT[a:b] for a, b in found.places] == found.context
    assert found.question == ["Who", "'", "s", "née", "?"]


@pytest.mark.parametrize(
    ("text", "read", "whole"),
    [
        ("Ada's  “tour”", "Ada's  “tour”", True),  # as the paragraph writes it
        (" Ó Brien", "Ó Brien", True),
        ("1969–70", "1969–70", True),
        ("$1.5", "$1.5m", False),  # widened
        ("rien.", "Brien.", False),
        ("96", "1969", False),
        (CONTEXT, CONTEXT, True),
    ],
)
def test_an_answer_is_a_run_of_whole_words(text, read, whole):
    (found,) = in_words([asked(text)])
    assert found.text(found.first, found.last) == read and found.can_be_answered() == whole


def test_a_question_can_be_answered_by_any_of_its_answers_anywhere():
    assert in_words([asked("96", "tour")])[0].can_be_answered()
    inside = Question("q", "", "Mayor May", "Who?", [Answer("May", 0)])
    (found,) = in_words([inside])
    assert found.can_be_answered() and found.text(found.first, found.last) == "Mayor"


def test_rows_are_padded_to_the_longest_of_the_batch():
    batch = pad_questions(EXAMPLES, [1, 0])
    assert batch.context_ids.tolist() == [[4, 0, 0, 0], [5, 6, 7, 8]]
    assert batch.question_ids.tolist() == [[3, 2, 1], [1, 2, 0]]
    assert (batch.context_lengths.tolist(), batch.question_lengths.tolist()) == ([1, 4], [3, 2])
    assert (batch.first.tolist(), batch.last.tolist(), batch.weight) == ([0, 1], [0, 3], 1.0)
    assert {part.dtype for part in batch[:6]} == {torch.int64}


def test_passages_are_padded_and_taught_where_their_answer_fits():
    examples = [
        PassageExample([1, 5, 2, 6, 7, 2], 3, [3, 4], [3, 4], first=0, last=1),
        PassageExample([1, 5, 2, 6, 2], 3, [3], [3], first=0, last=1),  # the answer ends behind what fits
        PassageExample([1, 5, 5, 2, 8, 9, 9, 2], 4, [4, 5], [4, 6], first=1, last=1),
    ]
    found = encoded_passages(examples, shortened=1)
    assert found.lengths.tolist() == [6, 5, 8] and found.taught.tolist() == [0, 2] and found.shortened == 1
    batch = found.pad([2, 1])
    assert batch.input_ids.tolist() == [[1, 5, 5, 2, 8, 9, 9, 2], [1, 5, 2, 6, 2, 0, 0, 0]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert (batch.firsts.tolist(), batch.lasts.tolist()) == ([[4, 5], [3, 0]], [[4, 6], [3, 0]])
    assert (batch.lengths.tolist(), batch.context_lengths.tolist()) == ([8, 5], [2, 1])
    assert (batch.first.tolist(), batch.last.tolist()) == ([1, 0], [1, 1])
