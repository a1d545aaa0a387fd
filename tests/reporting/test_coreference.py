"""The table of coreference, from result folders as the resolve stage leaves them."""

import numpy as np
import pandas as pd
import pytest

from retable.metrics.coreference import COLUMNS, coreference_counts, coreference_metrics
from tests.reporting.specifications import framed, made, shown

KEY = ["abc", "de"]
RIGHT, HALF = ["abc", "de"], ["ab", "d"]


@pytest.fixture
def write_resolver(write_run):
    """Of ten documents a split, so many without a mistake."""

    def write(system: str, seed: int, right: int, corpus: str = "conll2012"):
        counts = np.stack([coreference_counts(KEY, RIGHT if i < right else HALF) for i in range(10)])
        rows, metrics = [], {}
        for split in ("validation", "test"):
            rows += [(split, unit, f"{split}/{unit}", 0, *row) for unit, row in enumerate(counts.tolist())]
            metrics |= {f"coreference/{split}/{name}": value for name, value in coreference_metrics(counts).items()}
        folder = write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, task=corpus)
        columns = ["split", "unit", "document", "part", *COLUMNS]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def test_a_row_a_system_beside_what_was_published(write_resolver):
    rankers = [write_resolver("mention_ranker", seed, seed) for seed in (1, 2, 3)]
    rows = shown(made("coreference", framed(*rankers, write_resolver("rule", 1, 10))), "conll2012")
    assert [*rows] == ["mention_ranker_original", "mention_ranker", "mention_ranker_original_elmo", "rule"]
    assert rows["rule"]["Test average F1"] == rows["rule"]["Test MUC F1"] == "100.00"
    # two of three links, right in all documents but two; and the same for the other counts
    muc = np.mean([2 * (10 + 2 * n) / (30 + 10 + 2 * n) for n in (1, 2, 3)])
    assert rows["mention_ranker"]["Test MUC F1"] == f"{100 * muc:.2f}" and rows["mention_ranker"]["Runs"] == "3"
    assert rows["mention_ranker_original"]["Test published"] == "67.20"
    assert rows["mention_ranker_original_elmo"]["Test published"] == "70.40"
    assert rows["mention_ranker_original"]["Test verdict"] == "not run"


def test_the_interval_is_over_documents_and_the_spread_over_seeds(write_resolver):
    frame = framed(*(write_resolver("mention_ranker", seed, 3 * seed) for seed in (1, 2, 3)))
    own = frame[(frame["system"] == "mention_ranker") & (frame["split"] == "test")].set_index("metric")
    assert len(own) == 10
    for metric in ("average_f1", "b_cubed_f1", "ceaf_recall"):
        cell = own.loc[metric]
        assert cell["n"] == 3 and cell["std"] > 0
        assert 0 < cell["ci_low"] < cell["mean"] < cell["ci_high"] < 1
