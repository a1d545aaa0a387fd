import pytest
import torch
from torch import nn

from retable.corpora.coreference import Document
from retable.data.coreference import coreference_example
from retable.evaluation.coreference import predict_clusters


class Repeater(nn.Module):
    """Takes each word for a mention, and the last one before it in its document that is the same for its antecedent."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def predict(self, batch):
        rows = zip(batch.input_ids.tolist(), batch.lengths.tolist(), batch.documents.tolist(), strict=True)
        words = [(word, document) for ids, length, document in rows for word in ids[1 : length - 1]]
        places = torch.arange(len(words))
        before = [max((j for j in range(i) if words[j] == word), default=-1) for i, word in enumerate(words)]
        documents = torch.tensor([document for _, document in words])
        return torch.stack([places, places], dim=1), documents, torch.tensor(before)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_each_document_gets_its_own_clusters(batch_size):
    texts = ["a b a / c b a", "c", "b / b b", "c a"]
    ids = {word: i for i, word in enumerate(["<eos>", "a", "b", "c"])}
    examples = [
        coreference_example(Document("", 0, [part.split() for part in text.split(" / ")], []), ids) for text in texts
    ]
    assert predict_clusters(Repeater(), examples, batch_size) == [
        [[(0, 1), (2, 3), (5, 6)], [(1, 2), (4, 5)]],
        [],
        [[(0, 1), (1, 2), (2, 3)]],
        [],
    ]
