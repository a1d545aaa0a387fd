from math import exp, inf, log

import pytest
import torch

from retable.corpora.coreference import Document
from retable.data.coreference import CoreferenceBatch, coreference_example, pad_documents
from retable.data.spelling import Vocabulary
from retable.models.base import SpanRanker
from retable.models.mention_ranker import Ranking
from retable.objectives.antecedents import Antecedents, clusters_of


class Given(SpanRanker):
    """A model with given spans and scores."""

    def __init__(self, ranking: Ranking):
        super().__init__()
        self.ranking = ranking

    def forward(self, *_):
        return self.ranking


def ranking(sizes: list[int], max_antecedents: int) -> Ranking:
    """Draw documents with these numbers of spans, each of one word, with random scores."""
    torch.manual_seed(0)
    documents = torch.tensor([document for document, n in enumerate(sizes) for _ in range(n)])
    n = len(documents)
    antecedents = torch.arange(n)[:, None] - torch.arange(1, max_antecedents + 1)
    exist = (antecedents >= 0) & (documents[antecedents] == documents[:, None])
    scores = torch.randn(n, max_antecedents).masked_fill(~exist, -inf)
    scores = torch.cat([torch.zeros(n, 1), scores], dim=1).requires_grad_()
    return Ranking(torch.arange(n)[:, None].expand(n, 2), documents, antecedents, scores)


def batch_of(sizes: list[int], mentions: list[tuple[int, int]], clusters: list[int], weight: float = 1.0):
    """Return a batch with one sentence per document."""
    return CoreferenceBatch(
        torch.zeros(len(sizes), 1, dtype=torch.int64), torch.tensor(sizes), torch.arange(len(sizes)),
        torch.tensor(mentions, dtype=torch.int64).reshape(-1, 2), torch.tensor(clusters, dtype=torch.int64), weight,
    )  # fmt: skip


def test_the_loss_equals_its_enumeration():
    """Compared with a sum over spans and antecedents; clusters are {0, 2, 3}, {1, 5} and, outside the ranked spans,
    {4, 8}.
    """
    found = ranking([9, 2], max_antecedents=3)
    clusters = {0: 1, 2: 1, 3: 1, 1: 2, 5: 2, 4: 3, 8: 3, 9: 4, 10: 4}
    total = 0.0
    for i in range(11):
        start = 0 if i < 9 else 9
        scores = {None: 0.0} | {j: found.scores[i, i - j].item() for j in range(max(i - 3, start), i)}
        partition = sum(exp(s) for s in scores.values())
        gold = [j for j in scores if j is not None and i in clusters and clusters.get(j) == clusters[i]] or [None]
        total -= log(sum(exp(scores[j]) for j in gold) / partition)
    batch = batch_of([9, 2], [(i, i) for i in clusters], list(clusters.values()), weight=3.0)
    loss, metrics, state = Antecedents(Given(found)).loss(batch, None, 0)
    assert loss.item() == pytest.approx(3 * total / 2, rel=1e-5) and state is None
    assert metrics["loss"] == loss
    loss.backward()
    assert found.scores.grad.isfinite().all()


def test_a_span_has_the_cluster_of_the_same_words_alone():
    batch = batch_of([6], [(0, 1), (4, 4), (2, 3)], [1, 2, 1])
    spans = torch.tensor([[0, 0], [0, 1], [1, 1], [2, 3], [4, 4], [4, 5]])
    assert clusters_of(spans, batch).tolist() == [0, 1, 0, 1, 2, 0]
    assert clusters_of(spans, batch_of([6], [], [])).tolist() == [0] * 6


def test_the_best_antecedent_is_predicted():
    """The dummy antecedent ε has score 0, and wins if all other scores are negative."""
    scores = torch.tensor([[0.0, -inf, -inf], [0.0, -1.0, -inf], [0.0, -1.0, 2.0], [0.0, 3.0, 1.0]])
    given = ranking([4], max_antecedents=2)._replace(scores=scores)
    spans, documents, best = Antecedents(Given(given)).best(batch_of([4], [], []))
    assert best.tolist() == [-1, -1, 0, 2]
    assert torch.equal(spans, given.spans) and documents.tolist() == [0] * 4


class Repeater(Given):
    """A model that finds every word as a mention; its antecedent is the last equal word before it in the document."""

    def __init__(self):
        super().__init__(None)

    def forward(self, input_ids, lengths, documents):
        rows = zip(input_ids.tolist(), lengths.tolist(), documents.tolist(), strict=True)
        words = [(word, document) for ids, length, document in rows for word in ids[1 : length - 1]]
        places = torch.arange(len(words))
        before = [max((j for j in range(i) if words[j] == word), default=-1) for i, word in enumerate(words)]
        scores = torch.tensor([[0.0, 1.0 if j >= 0 else -inf] for j in before])
        owners = torch.tensor([document for _, document in words])
        return Ranking(torch.stack([places, places], dim=1), owners, torch.tensor(before)[:, None], scores)


@pytest.mark.parametrize("places", [[0], [3, 0], [1, 2, 0, 3]])
def test_each_document_gets_its_own_clusters(places):
    texts = ["a b a / c b a", "c", "b / b b", "c a"]
    vocabulary = Vocabulary.of_texts([["a", "b", "c"]], [])
    documents = [Document("", 0, [part.split() for part in text.split(" / ")], []) for text in texts]
    given = pad_documents([coreference_example(each, vocabulary) for each in documents], places)
    expected = [[[(0, 1), (2, 3), (5, 6)], [(1, 2), (4, 5)]], [], [[(0, 1), (1, 2), (2, 3)]], []]
    assert Antecedents(Repeater()).predict(given) == [expected[place] for place in places]
