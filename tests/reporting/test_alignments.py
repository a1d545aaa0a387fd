import numpy as np
import pandas as pd
import pytest

from retable.reporting.alignments import SENTENCES, alignment_figures, alignment_map
from retable.reporting.heat_map import FAINT
from retable.reporting.results import read_result
from tests.reporting.charts import squares_of

SOURCE, TARGET = ["a", "dog", "costs", "$5$", "a"], ["ein", "Hund", "<end>"]
SHARES = np.random.default_rng(0).dirichlet(np.ones(len(SOURCE)), len(TARGET))


@pytest.fixture
def figure(write_run):
    """Of a seed whose sentences are those of `SHARES`, the first with nothing that looks at its second word, and of
    another with other words."""
    results = []
    for seed, (target, source) in ((2, (["x"], ["y"])), (1, (TARGET, SOURCE))):
        folder = write_run("finetune", f"multi30k/rnn-{seed}", "rnn", seed, {})
        rows = [
            (sentence, u, t, s, w, 0.0 if (sentence, s) == (3, 1) else SHARES[u, s])
            for sentence in range(3, 3 + SENTENCES + 1)
            for u, t in enumerate(target)
            for s, w in enumerate(source)
        ]
        frame = pd.DataFrame(rows, columns=["sentence", "target_place", "target", "source_place", "source", "weight"])
        frame = frame.sample(frac=1, random_state=0)  # the order of rows says nothing
        frame.to_csv(folder / "alignments.csv", index=False)
        results.append(read_result(folder))
    figures = alignment_figures(results)
    assert [*figures] == ["multi30k-rnn"]
    return figures["multi30k-rnn"]


def test_a_map_of_one_sentence_has_its_weights():
    squares = squares_of(alignment_map(SOURCE, TARGET, SHARES).to_dict())
    assert squares["weight"].tolist() == pytest.approx(SHARES[SHARES >= FAINT].tolist(), rel=5e-3)
    assert set(squares["target_word"]) == set(TARGET)
