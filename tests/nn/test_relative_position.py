import pytest
import torch

from retable.nn.relative_position import RelativePositions, buckets


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (16, 20), (8, 200)])
def test_buckets_are_those_of_transformers(causal, n_buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-200, 201)
    theirs = t5.T5Attention._relative_position_bucket(distances, not causal, n_buckets, max_distance)
    assert torch.equal(buckets(distances, causal, n_buckets, max_distance), theirs)


def test_buckets_by_hand():
    """Of 32 buckets 16 are for each direction, 8 of these for 0 to 7 and 8 for octaves of a third up to 128."""
    found = buckets(torch.tensor([0, -1, -7, -8, -11, -12, -127, -128, -999, 1, 7, 8, 128]), False, 32, 128)
    assert found.tolist() == [0, 1, 7, 8, 8, 9, 15, 15, 15, 17, 23, 24, 31]
    found = buckets(torch.tensor([5, 0, -1, -15, -16, -128, -999]), True, 32, 128)
    assert found.tolist() == [0, 0, 1, 15, 16, 31, 31]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (1, 1), (1, 6), (3, 40)])
def test_each_score_gets_the_number_of_its_distance(causal, n_queries, n_keys):
    torch.manual_seed(0)
    positions = RelativePositions(2, causal)
    found = positions(n_queries, n_keys)
    assert found.shape == (1, 2, n_queries, n_keys)
    for query in range(n_queries):
        for key in range(n_keys):
            distance = torch.tensor(key - (n_keys - n_queries + query))
            expected = positions.numbers.weight[buckets(distance, causal, 32, 128)]
            assert torch.equal(found[0, :, query, key], expected)


def test_gradients_are_sums_over_the_scores_of_a_bucket():
    positions = RelativePositions(1, causal=True, n_buckets=4, max_distance=8)
    positions(3, 3).sum().backward()
    # Distances of 0 and ahead share a bucket (6 scores), 1 back has its own (2), 2 back is in the first wide one (1).
    assert positions.numbers.weight.grad[:, 0].tolist() == [6, 2, 1, 0]
