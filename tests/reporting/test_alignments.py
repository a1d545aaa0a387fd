import numpy as np
import pytest

from retable.reporting.alignments import alignment_map
from retable.reporting.heat_map import FAINT
from tests.reporting.charts import squares_of

SOURCE, TARGET = ["a", "dog", "costs", "$5$", "a"], ["ein", "Hund", "<end>"]
SHARES = np.random.default_rng(0).dirichlet(np.ones(len(SOURCE)), len(TARGET))


def test_a_map_of_one_sentence_has_its_weights():
    squares = squares_of(alignment_map(SOURCE, TARGET, SHARES).to_dict())
    assert squares["weight"].tolist() == pytest.approx(SHARES[SHARES >= FAINT].tolist(), rel=5e-3)
    assert set(squares["target_word"]) == set(TARGET)
