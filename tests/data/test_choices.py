import numpy as np
import torch

from retable.data.choices import Choices, pad_choices
from retable.data.examples import Inputs

# Of each example so many endings; a row tells its example, its place among the endings, and its length.
N_ENDINGS = np.array([2 + i % 3 for i in range(23)])
LENGTHS = [[1 + (5 * i + 3 * k) % 11 for k in range(n)] for i, n in enumerate(N_ENDINGS)]
ROWS = [[100 + i, k, *[1] * length] for i, lengths in enumerate(LENGTHS) for k, length in enumerate(lengths)]
LABELS = [i % n for i, n in enumerate(N_ENDINGS.tolist())]
CHOICES = Choices(Inputs(ROWS), N_ENDINGS, LABELS)


def places(batch) -> list[int]:
    """The examples of a batch, each of whose endings must be there in their order."""
    starts = np.cumsum(batch.n_endings.numpy()) - batch.n_endings.numpy()
    found = (batch.rows.input_ids[starts, 0] - 100).tolist()
    read = [(int(row[0]) - 100, int(row[1])) for row in batch.rows.input_ids]
    assert read == [(i, k) for i in found for k in range(N_ENDINGS[i])]
    assert batch.n_endings.tolist() == [N_ENDINGS[i] for i in found]
    assert batch.labels.tolist() == [LABELS[i] for i in found]
    return found


def test_an_example_is_as_long_as_its_longest_ending():
    assert CHOICES.lengths.tolist() == [2 + max(lengths) for lengths in LENGTHS]
    others = Choices(Inputs(ROWS, others=ROWS), N_ENDINGS, LABELS)
    assert others.lengths.tolist() == [2 * (2 + max(lengths)) for lengths in LENGTHS]


def test_a_batch_holds_every_ending_of_its_examples():
    batch = pad_choices(CHOICES, np.array([4, 0]))
    assert places(batch) == [4, 0] and batch.n_endings.tolist() == [3, 2] and batch.labels.tolist() == [1, 0]
    assert batch.rows.input_ids[:, :2].tolist() == [[104, 0], [104, 1], [104, 2], [100, 0], [100, 1]]
    assert batch.rows.lengths.tolist() == [2 + length for i in (4, 0) for length in LENGTHS[i]]
    assert batch.rows.input_ids.shape[1] == batch.rows.lengths.max() and batch.rows.segments is None
    assert {part.dtype for part in (batch.rows.input_ids, batch.n_endings, batch.labels)} == {torch.int64}


def test_segments_and_second_sequences_go_with_their_rows():
    given = Choices(Inputs(ROWS, others=ROWS[::-1], segments=[1] * len(ROWS)), N_ENDINGS, LABELS)
    batch = pad_choices(given, np.array([1]))
    first = int(N_ENDINGS[0])
    assert batch.rows.segments[:, 0].tolist() == [0] * 3 and batch.rows.segments[:, 1:].all()
    assert batch.rows.other_ids[:, :2].tolist() == [row[:2] for row in ROWS[::-1][first : first + 3]]
