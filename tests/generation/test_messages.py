"""Test the messages for invalid settings of a strategy."""

from functools import partial

import pytest

from retable.core.errors import UsageError
from retable.generation.beam_search import BeamSearch
from retable.generation.contrastive_search import ContrastiveSearch
from retable.generation.exact_search import ExactSearch
from retable.generation.sampling import Sampling, seeded

SAMPLING = partial(Sampling, seeded(0), max_new_tokens=3)
BEAMS = partial(BeamSearch, num_beams=3, max_new_tokens=3)
CONTRASTIVE = partial(ContrastiveSearch, max_new_tokens=3, top_k=2, penalty_alpha=0.5)


@pytest.mark.parametrize(("strategy", "settings", "said"), [
    (SAMPLING, {"temperature": 0.0}, "temperature=0.0 is out of range; write temperature=1.0, or take decoding=greedy"),
    (SAMPLING, {"top_k": -1}, "top_k=-1 is out of range"),
    (SAMPLING, {"top_p": 0.0}, "top_p=0.0 is out of range"),
    (SAMPLING, {"top_p": 1.2}, "top_p=1.2 is out of range"),
    (SAMPLING, {"typical_p": 0.0}, "typical_p=0.0 is out of range; write typical_p=1.0 for all tokens"),
    (SAMPLING, {"typical_p": 1.5}, "typical_p=1.5 is out of range; write typical_p=1.0 for all tokens"),
    (SAMPLING, {"num_return_sequences": 0}, "num_return_sequences=0 is out of range"),
    (SAMPLING, {"repetition_penalty": 0.0}, "repetition_penalty=0.0 is out of range"),
    (SAMPLING, {"batch_size": 0}, "batch_size=0 is out of range"),
    (SAMPLING, {"max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
    (ExactSearch, {"max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
    (BEAMS, {"num_beams": 0}, "num_beams=0 is out of range; write num_beams=1 or more"),
    (BEAMS, {"num_return_sequences": 4}, "=4 is out of range; write num_return_sequences=1 to 3, or num_beams"),
    (BEAMS, {"early_stopping": "maybe"}, "early_stopping=maybe is out of range; .*true, false or never"),
    (CONTRASTIVE, {"top_k": 0}, "top_k=0 is out of range"),
    (CONTRASTIVE, {"penalty_alpha": 1.1}, "penalty_alpha=1.1 is out of range"),
])  # fmt: skip
def test_settings_that_cannot_be(strategy, settings, said):
    with pytest.raises(UsageError, match=said):
        strategy(**settings)
