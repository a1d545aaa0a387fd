"""Test the buckets of distances; that each score uses its bucket is tested with T5, compared with transformers."""

import pytest
import torch

from retable.nn.relative_position import buckets


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (16, 20), (8, 200)])
def test_buckets_are_those_of_transformers(causal, n_buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-200, 201)
    theirs = t5.T5Attention._relative_position_bucket(distances, not causal, n_buckets, max_distance)
    assert torch.equal(buckets(distances, causal, n_buckets, max_distance), theirs)
