"""No number that is committed is better than the true distribution's."""

import pandas as pd

from tests.conftest import ROOT

KEY = ["corpus", "split", "metric"]


def test_no_committed_number_is_better_than_the_true_distributions():
    checked = 0
    for path in sorted((ROOT / "studies").glob("*/results/*.csv")):
        rows = pd.read_csv(path, keep_default_na=False)
        if {"system", "task", "mean", *KEY} <= set(rows):
            rows = rows[rows["metric"].isin(["perplexity_word", "bits_per_byte"]) & (rows["task"] == "")]
            rows = rows[rows["mean"] != ""].astype({"mean": float})
            bounds = rows[rows["system"] == "oracle"].set_index(KEY)["mean"].to_dict()
            for row in rows[rows["system"] != "oracle"].itertuples():
                if bound := bounds.get((row.corpus, row.split, row.metric)):
                    assert row.mean > bound, (path, row.system)
                    checked += 1
    assert checked > 500
