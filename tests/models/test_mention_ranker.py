from itertools import combinations
from math import inf

import numpy as np
import pytest
import torch
from torch import Tensor

from retable.corpora.coreference import Document
from retable.data.coreference import CoreferenceBatch, coreference_example, pad_documents
from retable.data.spelling import Vocabulary
from retable.models.mention_ranker import BINS, MentionRanker, Ranking, best_without_crossings, binned, spans_up_to
from retable.objectives.antecedents import Antecedents
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN

WORDS = [UNKNOWN, END_OF_LINE, *(f"w{i}" for i in range(9))]
MAX_WIDTH, MAX_ANTECEDENTS = 3, 4


def ranker(dropout: float = 0.0, spans_per_word: float = 0.8) -> MentionRanker:
    torch.manual_seed(0)
    sizes = {"d_embedding": 5, "d_character": 3, "filters": [(2, 4)], "d_model": 6, "d_feature": 3, "d_hidden": 7}
    return MentionRanker(
        8, WORDS, **sizes, max_width=MAX_WIDTH, spans_per_word=spans_per_word, max_antecedents=MAX_ANTECEDENTS,
        dropout=dropout, input_dropout=dropout,
    )  # fmt: skip


def batch_of(*lengths: list[int]) -> CoreferenceBatch:
    """Return documents of sentences with these numbers of words."""
    generator = np.random.default_rng(sum(map(sum, lengths)))
    vocabulary = Vocabulary.of_texts([], [WORDS[2:]])
    assert vocabulary.words == WORDS
    documents = [
        Document("d", 0, [[f"w{i}" for i in generator.integers(9, size=n)] for n in sizes], [[(0, 1), (2, 3)]])
        for sizes in lengths
    ]
    return pad_documents([coreference_example(each, vocabulary) for each in documents], range(len(documents)))


def test_scores_equal_their_equations():
    """Compared with the equations of sections 4.1 and 4.2, for one document, span by span."""
    model = ranker(spans_per_word=10).eval()  # so many that all non-crossing spans are kept
    batch = batch_of([4, 1, 3])
    ids = [row[1 : length - 1] for row, length in zip(batch.input_ids, batch.lengths.tolist(), strict=True)]
    x = torch.cat([model.input(row) for row in ids])
    states = [
        model.layers(model.input(row[None, :length]), torch.tensor([length]))[0, 1:-1]
        for row, length in zip(batch.input_ids, batch.lengths.tolist(), strict=True)
    ]
    state = torch.cat(states)

    def g(first: int, last: int) -> Tensor:
        alpha = torch.stack([model.head(state[t])[0] for t in range(first, last + 1)]).softmax(0)
        head = sum(a * x[t] for a, t in zip(alpha, range(first, last + 1), strict=True))
        return torch.cat([state[first], state[last], head, model.width.weight[last - first]])

    def pair(i: Tensor, j: Tensor, distance: int) -> Tensor:
        nearness = model.distance.weight[min(distance, 5) - 1]
        inputs = torch.cat([i, j, i * j, nearness])
        return model.antecedent.layers(inputs)[0]

    spans, documents, antecedents, scores = model(*batch[:3])
    assert documents.eq(0).all() and antecedents.shape[1] == MAX_ANTECEDENTS
    represented = [g(*span) for span in spans.tolist()]
    mention = [model.mention(one)[0] for one in represented]
    for i in range(len(spans)):
        assert scores[i, 0] == 0.0
        for k in range(1, MAX_ANTECEDENTS + 1):
            if i < k:
                assert scores[i, k] == -inf
            else:
                assert antecedents[i, k - 1] == i - k
                expected = mention[i] + mention[i - k] + pair(represented[i], represented[i - k], k)
                torch.testing.assert_close(scores[i, k], expected)


@pytest.mark.parametrize("sizes", [[4, 1, 3], [4, 3, 1], [1]], ids=str)
def test_spans_are_those_inside_of_sentences(sizes):
    sentences = torch.tensor([row for row, n in enumerate(sizes) for _ in range(n)])
    expected = [
        (first, last)
        for first, last in combinations_of(sum(sizes))
        if last - first < MAX_WIDTH and sentences[first] == sentences[last]
    ]
    first, last = spans_up_to(MAX_WIDTH, sentences)
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == expected


def combinations_of(n: int) -> list[tuple[int, int]]:
    return sorted([*combinations(range(n), 2), *((i, i) for i in range(n))])


def test_scores_have_no_bias():
    model = ranker()
    for network in (model.head, model.mention, model.antecedent.layers):
        *hidden, score = (layer for layer in network if isinstance(layer, torch.nn.Linear))
        assert len(hidden) == 2 and all(layer.bias is not None for layer in hidden) and score.bias is None


def test_pruning_takes_the_best_that_do_not_cross():
    generator = np.random.default_rng(0)
    crossed = 0
    for n in (1, 3, 6, 40):
        for _ in range(30):
            spans = [s for s in combinations_of(9) if s[1] - s[0] < 5]
            spans = [spans[i] for i in generator.permutation(len(spans))]
            expected: list[int] = []
            for place, (a, b) in enumerate(spans):
                crossing = any(a < c <= b < d or c < a <= d < b for c, d in (spans[other] for other in expected))
                crossed += crossing
                if len(expected) < n and not crossing:
                    expected.append(place)
            assert best_without_crossings(spans, n) == expected
    assert crossed > 100


@pytest.mark.parametrize(("ratio", "expected"), [(0.01, [1, 1]), (0.5, [4, 2]), (100.0, None)])
def test_so_many_spans_are_kept_of_each_document(ratio, expected):
    """Kept are λT spans, rounded down and at least one: the mentions with the best scores, in the order of the text."""
    model = ranker(spans_per_word=ratio)
    batch = batch_of([4, 2, 3], [5])
    scored = {}
    model.mention.register_forward_hook(lambda *args: scored.update(all=args[2][:, 0]))
    found: Ranking = model(*batch[:3])
    if expected:
        assert found.documents.bincount().tolist() == expected
    spans = found.spans.tolist()
    assert spans == sorted(spans)
    sentences = torch.tensor([row for row, n in enumerate([4, 2, 3, 5]) for _ in range(n)])
    every = list(zip(*(part.tolist() for part in spans_up_to(MAX_WIDTH, sentences)), strict=True))
    for document, (start, end) in enumerate([(0, 9), (9, 14)]):
        own = [
            (score, span) for score, span in zip(scored["all"].tolist(), every, strict=True) if start <= span[0] < end
        ]
        ranked = [span for _, span in sorted(own, reverse=True)]
        best = best_without_crossings(ranked, max(int(ratio * (end - start)), 1))
        assert sorted(ranked[i] for i in best) == [
            tuple(s) for s, d in zip(spans, found.documents, strict=True) if d == document
        ]


def test_documents_and_padding_change_nothing():
    model = ranker(dropout=0.5).eval()
    sizes = [[4, 2], [7, 1, 3], [1], [5]]
    together: Ranking = model(*batch_of(*sizes)[:3])
    # noise is drawn for all words of a batch together; a single document gets its part of it
    batch = batch_of(*sizes)
    start = 0
    for document, own_sizes in enumerate(sizes):
        rows = batch.documents == document
        longest = int(batch.lengths[rows].max())
        alone: Ranking = model(batch.input_ids[rows, :longest], batch.lengths[rows], batch.documents[rows] * 0)
        mine = together.documents == document
        assert (together.spans[mine] - start).tolist() == alone.spans.tolist()
        width = alone.scores.shape[1]
        torch.testing.assert_close(together.scores[mine, :width], alone.scores)
        assert together.scores[mine, width:].eq(-inf).all()
        start += sum(own_sizes)


def test_bins_are_the_papers():
    expected = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 7: 4, 8: 5, 15: 5, 16: 6, 31: 6, 32: 7, 63: 7, 64: 8, 900: 8}
    assert binned(torch.tensor([*expected])).tolist() == [*expected.values()] and len(BINS) == 9


def test_a_document_of_one_span_has_no_antecedents():
    spans, _, antecedents, scores = ranker()(*batch_of([1])[:3])
    assert (spans.tolist(), antecedents.shape, scores.tolist()) == ([[0, 0]], (1, 0), [[0.0]])


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    model = ranker(spans_per_word=2.0)
    model.max_antecedents, model.max_width = 70, 70
    batch = batch_of([66, 4], [3])
    Antecedents(model).loss(batch, None, 0)[0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    used = model.distance.weight.grad.abs().sum(dim=1)
    assert (used > 0).all()
