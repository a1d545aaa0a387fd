"""Test padded batches of examples of tasks, and batches of examples with similar lengths."""

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.corpora.coreference import Document
from retable.corpora.squad import Answer, Question
from retable.data import pairs, tagged
from retable.data.bucketed import Bucketed, in_order_of_length
from retable.data.choices import Choices, pad_choices
from retable.data.coreference import coreference_example, pad_documents
from retable.data.examples import Inputs, encoded, pad
from retable.data.pairs import BucketedPairs, pairs_by_length
from retable.data.questions import PassageExample, QuestionExample, encoded_passages, in_words, pad_questions
from retable.data.spelling import Vocabulary
from retable.data.tagged import TaggedExample, pad_tagged


def test_a_batch_is_filled_up_with_zeros_to_the_longest():
    batch = pad(Inputs([[5, 6], [7], [8, 9, 1]]), [2, 0, 1], np.array([2, 1]))
    assert batch.input_ids.tolist() == [[8, 9, 1], [7, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.labels.tolist() == [1, 0]
    assert {tensor.dtype for tensor in batch[:3]} == {torch.int64}
    assert batch.weight == 1 and batch[4:] == (None, None, None)


def test_a_second_sequence_is_padded_for_itself():
    batch = pad(Inputs([[5, 6], [7], [8, 9, 1]], [[2], [3, 4, 5, 6], [7, 8]]), [0.5, 1.0, 2.0], np.array([1, 2]))
    assert batch.input_ids.tolist() == [[7, 0, 0], [8, 9, 1]] and batch.lengths.tolist() == [1, 3]
    assert batch.other_ids.tolist() == [[3, 4, 5, 6], [7, 8, 0, 0]] and batch.other_lengths.tolist() == [4, 2]
    assert batch.labels.tolist() == [1.0, 2.0] and batch.labels.dtype == torch.float32
    assert batch.segments is None


def test_segments_are_0_and_from_a_place_on_1():
    batch = pad(Inputs([[5, 6, 7, 8], [7, 1, 2]], segments=[2, 1]), [0, 1], np.array([0, 1]))
    assert batch.segments.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]] and batch.segments.dtype == torch.int64


LENGTHS = np.random.default_rng(0).integers(1, 40, 1237)
SEQUENCES = [[i + 1] * length for i, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("others", [None, [[1] * (41 - length) for length in LENGTHS]], ids=["alone", "pairs of 41"])
def test_neighbours_are_alike_in_the_length_of_all_that_is_read(others):
    inputs = Inputs(SEQUENCES, others)
    examples = encoded(inputs, [0] * len(LENGTHS))
    batches = Bucketed(examples, 8, seed=1)
    spans = [np.ptp(batches.batch(step).lengths.numpy()) for step in range(batches.steps_per_epoch)]
    if others is None:
        assert np.mean(spans) < 3  # of 39 lengths; a random batch of 8 has a range of about 30
    else:
        assert set(inputs.lengths) == {41} and np.mean(spans) > 20
        order = [place for places, _ in in_order_of_length(examples, 100) for place in places]
        assert order == list(range(len(LENGTHS)))


# Examples with two to four endings; the tokens of a row are its example, the number of the ending, and its length.
N_ENDINGS = [2 + i % 3 for i in range(9)]
ROWS = [[100 + i, k, *[1] * (1 + (5 * i + 3 * k) % 11)] for i, n in enumerate(N_ENDINGS) for k in range(n)]


def test_a_batch_of_choices_holds_every_ending_of_its_examples():
    given = Choices(Inputs(ROWS, others=ROWS[::-1], segments=[1] * len(ROWS)), np.array(N_ENDINGS), range(9))
    lengths = [[len(row) for row in ROWS if row[0] == 100 + i] for i in range(9)]
    assert Choices(Inputs(ROWS), given.n_endings, range(9)).lengths.tolist() == [max(each) for each in lengths]
    both = [len(row) + len(other) for row, other in zip(ROWS, ROWS[::-1], strict=True)]
    assert given.lengths.tolist() == [max(n for n, row in zip(both, ROWS, strict=True) if row[0] == 100 + i)
                                      for i in range(9)]  # fmt: skip
    batch = pad_choices(given, np.array([4, 0]))
    assert batch.n_endings.tolist() == [3, 2] and batch.labels.tolist() == [4, 0]
    rows = batch.rows
    assert rows.input_ids[:, :2].tolist() == [[104, 0], [104, 1], [104, 2], [100, 0], [100, 1]]
    assert rows.lengths.tolist() == [*lengths[4], *lengths[0]] and rows.input_ids.shape[1] == rows.lengths.max()
    assert rows.segments[:, 0].tolist() == [0] * 5 and rows.segments[:, 1:].all()
    places = [i for i, row in enumerate(ROWS) if row[0] == 104] + [0, 1]
    assert rows.other_ids[:, :2].tolist() == [ROWS[::-1][place][:2] for place in places]
    assert {part.dtype for part in (rows.input_ids, batch.n_endings, batch.labels)} == {torch.int64}


def test_words_and_tags_are_padded_and_a_predicate_stands_where_its_first_token_does():
    examples = [
        TaggedExample([9, 4, 5, 6, 9], [1, 2, 3], [0, 2, 1]),
        TaggedExample([9, 7, 9], [1], [3]),
        TaggedExample([9, 1, 2, 2, 3, 8, 9], [1, 4], [1, 1]),  # words of several sub-words
    ]
    batch = pad_tagged(examples, [2, 1])
    assert batch.input_ids.tolist() == [[9, 1, 2, 2, 3, 8, 9], [9, 7, 9, 0, 0, 0, 0]]
    assert batch.words.tolist() == [[1, 4], [1, 0]]
    assert batch.tags.tolist() == [[1, 1], [3, 0]]
    assert (batch.lengths.tolist(), batch.n_words.tolist()) == ([7, 3], [2, 1])
    assert {part.dtype for part in batch[:5]} == {torch.int64} and batch.weight == 1.0
    with_predicates = [example._replace(predicate=place) for example, place in zip(examples, (2, 0, 1), strict=True)]
    assert pad_tagged(with_predicates, [2, 0, 1]).predicates.tolist() == [4, 3, 1]
    assert batch.predicates is None and batch.features is None
    features = [torch.full((len(each.words), width), width) for each, width in zip(examples, (2, 1, 3), strict=True)]
    with_features = [each._replace(features=rows) for each, rows in zip(examples, features, strict=True)]
    assert pad_tagged(with_features, [1, 2]).features.tolist() == [[[1, 0, 0], [0, 0, 0]], [[3, 3, 3], [3, 3, 3]]]
    assert tagged.encoded(examples).lengths.tolist() == [3, 1, 2]
    assert [tagged.encoded(examples, n).truncated for n in (0, 2)] == [0, 2]


def test_documents_of_sentences_stand_one_behind_the_other():
    vocabulary = Vocabulary.of_texts([["a", "b", "c"] * 2], [])  # ids 2, 3 and 4 are words, and id 1 is the end mark
    documents = [
        Document("one", 0, [["a", "b", "c"], ["b"]], [[(0, 2), (3, 4)], [(1, 2), (2, 3)]]),
        Document("two", 0, [["c"]], []),
        Document("three", 0, [["a"], ["b", "a"]], [[(0, 1), (2, 3)]]),
    ]
    examples = [coreference_example(each, vocabulary) for each in documents]
    batch = pad_documents(examples, [2, 1, 0])
    assert batch.input_ids.tolist() == [
        [1, 2, 1, 0, 0], [1, 3, 2, 1, 0], [1, 4, 1, 0, 0], [1, 2, 3, 4, 1], [1, 3, 1, 0, 0],
    ]  # fmt: skip
    assert batch.lengths.tolist() == [3, 4, 3, 5, 3] and batch.documents.tolist() == [0, 0, 1, 2, 2]
    # places of the first and the last word, in each document
    assert batch.mentions.tolist() == [[0, 0], [2, 2], [4, 5], [7, 7], [5, 5], [6, 6]]
    assert batch.clusters.tolist() == [1, 1, 2, 2, 3, 3]
    assert pad_documents(examples, [1]).mentions.shape == (0, 2)


EXAMPLES = [QuestionExample([5, 6, 7, 8], [1, 2], 1, 3), QuestionExample([4], [3, 2, 1], 0, 0)]
CONTEXT = "In 1969–70, Ada's  “tour” cost $1.5m; née Ó Brien."


def asked(*texts: str) -> Question:
    return Question("q", "", CONTEXT, "Who's née?", [Answer(text, CONTEXT.index(text)) for text in texts])


def test_words_are_runs_of_letters_and_other_signs():
    (passage,) = in_words([asked("Ada")])
    assert passage.context == [
        *("In", "1969", "–", "70", ",", "Ada", "'", "s", "“", "tour", "”", "cost", "$", "1", ".", "5m", ";"),
        *("née", "Ó", "Brien", "."),
    ]
    assert [CONTEXT[a:b] for a, b in passage.places] == passage.context
    assert passage.question == ["Who", "'", "s", "née", "?"]


@pytest.mark.parametrize(("text", "read", "whole"), [
    ("Ada's  “tour”", "Ada's  “tour”", True),  # the answer is written as in the paragraph
    (" Ó Brien", "Ó Brien", True),
    ("1969–70", "1969–70", True),
    ("$1.5", "$1.5m", False),  # the answer is widened to a whole word
    ("rien.", "Brien.", False),
    ("96", "1969", False),
    (CONTEXT, CONTEXT, True),
])  # fmt: skip
def test_an_answer_is_a_run_of_whole_words(text, read, whole):
    (passage,) = in_words([asked(text)])
    assert passage.text(passage.first, passage.last) == read and passage.can_be_answered() == whole


def test_a_question_can_be_answered_by_any_of_its_answers_anywhere():
    assert in_words([asked("96", "tour")])[0].can_be_answered()
    inside = Question("q", "", "Mayor May", "Who?", [Answer("May", 0)])
    (passage,) = in_words([inside])
    assert passage.can_be_answered() and passage.text(passage.first, passage.last) == "Mayor"


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
        PassageExample([1, 5, 2, 6, 2], 3, [3], [3], first=0, last=1),  # the answer ends after the part that fits
        PassageExample([1, 5, 5, 2, 8, 9, 9, 2], 4, [4, 5], [4, 6], first=1, last=1),
    ]
    passages = encoded_passages(examples, truncated=1)
    assert passages.lengths.tolist() == [6, 5, 8] and passages.trainable.tolist() == [0, 2] and passages.truncated == 1
    batch = passages.pad([2, 1])
    assert batch.input_ids.tolist() == [[1, 5, 5, 2, 8, 9, 9, 2], [1, 5, 2, 6, 2, 0, 0, 0]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert (batch.firsts.tolist(), batch.lasts.tolist()) == ([[4, 5], [3, 0]], [[4, 6], [3, 0]])
    assert (batch.lengths.tolist(), batch.context_lengths.tolist()) == ([8, 5], [2, 1])
    assert (batch.first.tolist(), batch.last.tolist()) == ([1, 0], [1, 1])


N, LIMIT, END = 701, 200, 3
GENERATOR = np.random.default_rng(0)
S, U = (GENERATOR.integers(1, 40, N) for _ in range(2))
SOURCES = [[10 + i] * (length - 1) + [END] if length > 1 else [END] for i, length in enumerate(S)]
TARGETS = [[10 + i] * length + [END] for i, length in enumerate(U)]  # the tokens of a target show its place


def batches_of(seed: int = 1, limit: int = LIMIT) -> BucketedPairs:
    return BucketedPairs(SOURCES, TARGETS, limit, seed)


def places(batch) -> list[int]:
    return (batch.labels[:, 0] - 10).tolist()


def test_pad_shifts_the_target_behind_the_end_mark():
    batch = pairs.pad([[5, 6, END], [7, END]], [[8, END], [9, 4, END]], np.array([1, 0]))
    assert batch.source_ids.tolist() == [[7, END, 0], [5, 6, END]]
    assert batch.target_ids.tolist() == [[END, 9, 4], [END, 8, 0]]
    assert batch.labels.tolist() == [[9, 4, END], [8, END, 0]]
    assert (batch.source_lengths.tolist(), batch.target_lengths.tolist()) == ([2, 3], [3, 2])
    assert batch.weight == 1
    assert {tensor.dtype for tensor in batch[:-1]} == {torch.int64}


def test_batches_are_cut_where_the_next_sequence_would_not_fit():
    assert pairs.cut(np.array([1, 2, 2, 3, 5, 6]), 6) == [0, 3, 4, 5, 6]
    assert pairs.cut(np.array([4]), 4) == [0, 1]
    batches = BucketedPairs([[5, END], [END], [5, 6, END]], [[8, END], [9, END], [8, 9, END]], max_tokens=4, seed=0)
    assert (batches.steps_per_epoch, batches.tokens_per_step) == (2, (2 + 2 + 3) / 2)


def test_batches_are_full():
    """Every batch except the last of a length is full: one more pair would not fit. So an epoch has few steps."""
    padded = sum(max(s, u + 1) for s, u in zip(S, U, strict=True))
    assert batches_of().steps_per_epoch < 1.15 * padded / LIMIT


def test_pairs_of_equal_length_stay_in_the_order_that_is_drawn():
    longest = np.maximum(S, U + 1)
    drawn = np.random.default_rng((1, 0)).permutation(N).tolist()
    expected, batches = sorted(drawn, key=lambda place: longest[place]), batches_of(seed=1)
    for step in range(batches.steps_per_epoch):
        in_batch = places(batches.batch(step))
        begin = expected.index(in_batch[0])
        assert in_batch == expected[begin : begin + len(in_batch)]
    by_length = np.concatenate(pairs_by_length(SOURCES, TARGETS, LIMIT)).tolist()
    assert by_length == sorted(range(N), key=lambda place: longest[place])


def test_too_long_a_sentence():
    with pytest.raises(UsageError, match=r"40 tokens .* batch of batch_size=39; write batch_size=40 or more"):
        batches_of(limit=39)
