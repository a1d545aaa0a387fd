"""BERT, ELECTRA, T5 and translators, killed and resumed: masks, corruptions and draws come from the step alone."""

import pytest

from tests.training.resuming import PRETRAINING, assert_resumed


@pytest.mark.parametrize("name", PRETRAINING)
def test_killed_and_resumed_equals_uninterrupted(uninterrupted, name, tmp_path):
    assert_resumed(name, 5, uninterrupted(name), tmp_path)
