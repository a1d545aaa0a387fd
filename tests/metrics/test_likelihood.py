import math

import pytest

from retable.metrics.likelihood import bits_per_byte, likelihood_metrics, perplexity


def test_a_uniform_model_has_its_vocabulary_as_perplexity():
    # 12 tokens of 32 equal choices are 5 bits each; they spell 6 words and 30 bytes
    metrics = likelihood_metrics(nats=12 * math.log(32), tokens=12, words=6, bytes=30)
    assert metrics["perplexity_token"] == pytest.approx(32)
    assert metrics["perplexity_word"] == pytest.approx(32**2)
    assert metrics["bits_per_byte"] == pytest.approx(12 * 5 / 30)
    assert (metrics["tokens"], metrics["words"], metrics["bytes"]) == (12, 6, 30)
    assert perplexity([0, math.log(4)], [1, 2]) == pytest.approx([1, 2])
    assert bits_per_byte([0, math.log(4)], 4) == pytest.approx([0, 0.5])


@pytest.mark.parametrize("nats, tokens", [(math.inf, 3), (math.nan, 3), (1.0, 0)])
def test_refuses_impossible_texts_and_empty_ones(nats, tokens):
    with pytest.raises(ValueError, match="no perplexity"):
        likelihood_metrics(nats, tokens, words=3, bytes=3)
