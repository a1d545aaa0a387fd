import math
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from retable.metrics.spans import convert
from retable.nn.crf import CRF, allowed_transitions

B, T, K = 4, 4, 3
LENGTHS = torch.tensor([4, 1, 3, 2])  # not sorted
TAGS = {
    "IOB1": ["O", "B-x", "I-x", "B-y", "I-y"],
    "IOB2": ["O", "B-x", "I-x", "B-y", "I-y"],
    "IOBES": ["O", "B-x", "I-x", "E-x", "S-x", "I-y", "E-y"],
}


@pytest.fixture(params=["all", "some"])
def crf(request) -> CRF:
    """Return a CRF with all transitions allowed, or with some forbidden."""
    torch.manual_seed(0)
    allowed = None
    if request.param == "some":
        allowed = torch.ones(K + 1, K + 1, dtype=torch.bool)
        allowed[0, 2] = allowed[1, 1] = allowed[-1, 1] = allowed[0, -1] = False
    crf = CRF(K, allowed)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    crf.allowed = torch.ones(K + 1, K + 1, dtype=torch.bool) if allowed is None else allowed
    return crf


def emissions() -> Tensor:
    return torch.randn(B, T, K, generator=torch.Generator().manual_seed(1))  # random also after the end of a row


def enumerated(crf: CRF, row: Tensor) -> dict[tuple[int, ...], Tensor]:
    """Return the score of every allowed sequence for the emissions (t, K) of one row."""
    scores = {}
    for tags in product(range(K), repeat=len(row)):
        if all(crf.allowed[pair] for pair in zip((K, *tags), (*tags, K), strict=True)):
            moves = sum(crf.transition[pair] for pair in pairwise(tags))
            emitted = sum(row[t, tag] for t, tag in enumerate(tags))
            scores[tags] = crf.start[tags[0]] + emitted + moves + crf.end[tags[-1]]
    return scores


def test_log_partition_and_viterbi_equal_enumeration(crf):
    given = emissions()
    partition, best = crf.log_partition(given, LENGTHS), crf.best(given, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        scores = enumerated(crf, given[row, :length])
        torch.testing.assert_close(partition[row], torch.stack(list(scores.values())).logsumexp(0))
        assert tuple(best[row, :length].tolist()) == max(scores, key=scores.__getitem__)
        assert not best[row, length:].any()


def test_log_likelihood_equals_enumeration_and_sums_to_one(crf):
    for row, length in enumerate(LENGTHS.tolist()):
        scores = enumerated(crf, emissions()[row, :length])
        expected = torch.stack(list(scores.values())).log_softmax(0)
        tags = torch.full((len(scores), T), 2)
        tags[:, :length] = torch.tensor(list(scores))
        given = emissions()[row].expand(len(scores), T, K)
        log_likelihood = crf.log_likelihood(given, tags, torch.full((len(scores),), length))
        torch.testing.assert_close(log_likelihood, expected)
        assert log_likelihood.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_the_gradient_of_the_partition_is_that_of_enumeration_in_fp64(crf):
    crf, given, weights = crf.double(), emissions().double().requires_grad_(), torch.tensor([1.0, -2.0, 0.5, 3.0])
    scores = [enumerated(crf, given[row, :length]) for row, length in enumerate(LENGTHS.tolist())]
    tags = torch.tensor([[2, 0, 1, 2], [2, 9, 9, 9], [0, 0, 1, 9], [2, 2, 9, 9]])
    own = torch.stack([each[tuple(row[:n].tolist())] for each, row, n in zip(scores, tags, LENGTHS, strict=True)])
    partitions = torch.stack([torch.stack([*each.values()]).logsumexp(0) for each in scores])
    actual = crf.log_partition(given, LENGTHS), crf.log_likelihood(given, tags.clamp(max=2), LENGTHS)
    inputs = [given, *crf.parameters()]
    for ours, exact in zip(actual, (partitions, own - partitions), strict=True):
        expected = torch.autograd.grad(exact @ weights.double(), inputs, retain_graph=True)
        slopes = torch.autograd.grad(ours @ weights.double(), inputs)
        torch.testing.assert_close(slopes, expected, rtol=1e-12, atol=1e-12)


def test_a_batch_of_single_words_is_a_softmax_of_the_sums_of_scores():
    crf, given, words = CRF(K), emissions()[:, :1], torch.ones(B, dtype=torch.long)
    torch.nn.init.normal_(crf.start), torch.nn.init.normal_(crf.end)
    sums = crf.start + given[:, 0] + crf.end
    partition = crf.log_partition(given, words)
    torch.testing.assert_close(partition, sums.logsumexp(1))
    shares = sums.softmax(1).sum(0)
    slopes = torch.autograd.grad(partition.sum(), [crf.start, crf.transition, crf.end])
    torch.testing.assert_close(slopes, (shares, torch.zeros(K, K), shares))


def test_long_rows_and_great_scores_are_summed_without_overflow():
    crf, given = CRF(2), 1e3 * torch.ones(1, 500, 2)
    assert crf.log_partition(given, torch.tensor([500])).item() == pytest.approx(500 * (1e3 + math.log(2)))
    given = torch.tensor([[[0.0, 200.0], [200.0, 0.0]]])
    crf.transition.data.copy_(torch.tensor([[0.0, 0.0], [-150.0, 0.0]]))
    assert crf.log_partition(given, torch.tensor([2])).item() == pytest.approx(250)


@pytest.mark.parametrize(("names", "scheme", "tags", "lengths", "unreachable"), [
    # IOBES, a sentence of one word, and no training chunk of this type has one word: all sequences are forbidden
    (["B-x", "E-x"], "IOBES", [[0, 0, 0], [1, 1, 1]], [1, 3], []),
    # I-y can only follow B-y, and B-y does not occur in the training data
    (["O", "B-x", "I-x", "I-y"], "IOB2", [[0, 1, 2, 0, 1]], [5], [3]),
])  # fmt: skip
def test_what_is_forbidden_leaves_no_nan(names, scheme, tags, lengths, unreachable):
    crf, tags = CRF(len(names), allowed_transitions(names, scheme)), torch.tensor(tags)
    given = torch.randn(*tags.shape, len(names), generator=torch.Generator().manual_seed(0)).requires_grad_()
    log_likelihood = crf.log_likelihood(given, tags, torch.tensor(lengths))
    log_likelihood.sum().backward()
    assert all(x.isfinite().all() for x in (log_likelihood, given.grad, *(p.grad for p in crf.parameters())))
    assert not given.grad[:, :, unreachable].any()


def test_it_starts_as_an_independent_softmax():
    given, tags = emissions(), torch.randint(K, (B, T), generator=torch.Generator().manual_seed(2))
    of_words = given.log_softmax(2).gather(2, tags[:, :, None])[:, :, 0] * (torch.arange(T) < LENGTHS[:, None])
    torch.testing.assert_close(CRF(K).log_likelihood(given, tags, LENGTHS), of_words.sum(1))


def test_a_gpus_bf16_emissions_are_summed_in_fp32():
    given = emissions().bfloat16()
    assert CRF(K).log_partition(given, LENGTHS).dtype == torch.float32
    assert torch.equal(CRF(K).log_partition(given, LENGTHS), CRF(K).log_partition(given.float(), LENGTHS))


@pytest.mark.parametrize("scheme", TAGS)
def test_a_scheme_allows_what_its_conversion_leaves_alone(scheme):
    tags = TAGS[scheme]
    allowed = allowed_transitions(tags, scheme)
    K = len(tags)
    for length in (1, 2, 3):
        for sequence in product(range(K), repeat=length):
            passes = all(allowed[pair] for pair in zip((K, *sequence), (*sequence, K), strict=True))
            names = [tags[tag] for tag in sequence]
            assert passes == (convert(names, scheme) == names), names


def test_a_type_may_have_hyphens():
    allowed = allowed_transitions(["O", "B-C-ARG1", "I-C-ARG1", "I-R-ARG1"], "IOB2").int().tolist()
    assert allowed == allowed_transitions(["O", "B-x", "I-x", "I-y"], "IOB2").int().tolist()


def test_only_scores_are_saved():
    assert [*CRF(2, allowed_transitions(["B-x", "E-x"], "IOBES")).state_dict()] == ["start", "transition", "end"]
