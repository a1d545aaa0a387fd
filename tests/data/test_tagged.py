from itertools import chain

import numpy as np
import torch

from retable.data.bucketed import Bucketed, in_order_of_length
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


def sentences(n: int) -> list[TaggedExample]:
    lengths = [1 + (7 * i) % 12 for i in range(n)]
    return [
        TaggedExample([0, *[i + 1] * length, 0], range(1, length + 1), [0] * length) for i, length in enumerate(lengths)
    ]


def seen(batch) -> list[int]:
    return (batch.input_ids[:, 1] - 1).tolist()


def test_an_epoch_has_every_sentence_once_in_a_new_order():
    batches = Bucketed(encoded(sentences(23)), batch_size=4, seed=1)
    epochs = [[seen(batches.batch(6 * epoch + step)) for step in range(6)] for epoch in range(2)]
    for epoch in epochs:
        assert sorted(chain.from_iterable(epoch)) == list(range(23)) and {len(rows) for rows in epoch} == {3, 4}
    assert epochs[0] != epochs[1]
    again = Bucketed(encoded(sentences(23)), batch_size=4, seed=1)
    assert [seen(again.batch(6 + step)) for step in range(6)] == epochs[1]
    lengths = [batches.batch(step).n_words for step in range(6)]
    assert all(each.max() - each.min() <= 3 for each in lengths)  # neighbours are alike in length


def test_the_processes_share_a_batch_and_their_average_is_the_mean_over_words():
    batches = Bucketed(encoded(sentences(23)), batch_size=4, seed=1)
    whole, parts = batches.batch(2), [batches.batch(2, rank, 3) for rank in range(3)]
    assert sorted(seen(whole)) == sorted(chain.from_iterable(map(seen, parts)))
    words = torch.tensor([float(part.n_words.sum()) for part in parts])
    weights = torch.tensor([part.weight for part in parts])
    torch.testing.assert_close(weights / 3, words / words.sum())
    n = len(whole.n_words)
    assert [batches.batch(2, rank, 5).weight > 0 for rank in range(5)] == [True] * n + [False] * (5 - n)


def test_by_length_every_sentence_comes_once():
    examples = sentences(9)
    found = [(places, batch) for places, batch in in_order_of_length(encoded(examples), 4)]
    assert sorted(np.concatenate([places for places, _ in found])) == list(range(9))
    for places, batch in found:
        assert seen(batch) == places.tolist()
    lengths = [length for _, batch in found for length in batch.n_words.tolist()]
    assert lengths == sorted(lengths)
