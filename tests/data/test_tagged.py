import torch

from retable.data.tagged import TaggedExample, encoded, pad_tagged

EXAMPLES = [
    TaggedExample([9, 4, 5, 6, 9], [1, 2, 3], [0, 2, 1]),
    TaggedExample([9, 7, 9], [1], [3]),
    TaggedExample([9, 1, 2, 2, 3, 8, 9], [1, 4], [1, 1]),  # of sub-words
]


def test_rows_are_padded_to_the_longest_of_the_batch():
    batch = pad_tagged(EXAMPLES, [2, 1])
    assert batch.input_ids.tolist() == [[9, 1, 2, 2, 3, 8, 9], [9, 7, 9, 0, 0, 0, 0]]
    assert batch.words.tolist() == [[1, 4], [1, 0]]
    assert batch.tags.tolist() == [[1, 1], [3, 0]]
    assert (batch.lengths.tolist(), batch.n_words.tolist()) == ([7, 3], [2, 1])
    assert {part.dtype for part in batch[:5]} == {torch.int64} and batch.weight == 1.0


def test_it_is_known_how_many_were_shortened():
    assert encoded(EXAMPLES, shortened=2).shortened == 2 and encoded(EXAMPLES).shortened == 0


def test_a_predicate_stands_where_its_first_token_does():
    """Behind the token that a sentence begins with, and behind those of the words before."""
    with_predicates = [example._replace(predicate=place) for example, place in zip(EXAMPLES, (2, 0, 1), strict=True)]
    batch = pad_tagged(with_predicates, [2, 0, 1])
    assert batch.predicates.tolist() == [4, 3, 1]
    assert pad_tagged(EXAMPLES, [0]).predicates is None
