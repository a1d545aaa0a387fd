import pytest

from retable.corpora.coreference import Document
from retable.data.coreference import coreference_example, pad_documents
from retable.data.spelling import Vocabulary

VOCABULARY = Vocabulary.of_texts([["a", "b", "c"] * 2], [])  # whose ids are 2, 3 and 4, and 1 of the ends
DOCUMENTS = [
    Document("one", 0, [["a", "b", "c"], ["b"]], [[(0, 2), (3, 4)], [(1, 2), (2, 3)]]),
    Document("two", 0, [["c"]], []),
    Document("three", 0, [["a"], ["b", "a"]], [[(0, 1), (2, 3)]]),
]


@pytest.fixture
def examples():
    return [coreference_example(each, VOCABULARY) for each in DOCUMENTS]


def test_documents_stand_one_behind_the_other(examples):
    batch = pad_documents(examples, [2, 1, 0])
    assert batch.input_ids.tolist() == [
        [1, 2, 1, 0, 0],
        [1, 3, 2, 1, 0],
        [1, 4, 1, 0, 0],
        [1, 2, 3, 4, 1],
        [1, 3, 1, 0, 0],
    ]
    assert batch.lengths.tolist() == [3, 4, 3, 5, 3] and batch.documents.tolist() == [0, 0, 1, 2, 2]
    # the first and the last word: the third document's begin at the first, the first's behind its three and one
    assert batch.mentions.tolist() == [[0, 0], [2, 2], [4, 5], [7, 7], [5, 5], [6, 6]]
    assert batch.clusters.tolist() == [1, 1, 2, 2, 3, 3]
    assert pad_documents(examples, [1]).mentions.shape == (0, 2)
