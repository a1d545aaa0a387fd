from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from retable.corpora.questions import Question
from retable.evaluation.unlabelled_acceptability import MEASURES, UnlabelledAcceptability
from retable.reporting.units import UnitSums
from retable.tokenizers import word
from tests.evaluation.given import Given


class Sentences:
    def __init__(self, *judged):
        self.inputs, self.judged = [Path("sentences")], judged

    def read(self):
        return [Question({"sentence": sentence}, ("no", "yes"), right) for sentence, right in self.judged]


def benchmark(tmp_path, *judged):
    """Run the benchmark on tokens of which a fifth is `a`, two fifths are `b`, and two fifths are ends."""
    word.train(["a a b"]).save(tmp_path / "tokenizer.json")
    np.array([2, 3, 1, 3, 1], "<u2").tofile(tmp_path / "train.bin")
    return UnlabelledAcceptability(str(tmp_path), Sentences(*judged))


def test_measures_by_hand(tmp_path):
    metrics = benchmark(tmp_path, ("a b", 1), ("b", 0))(Given(), tmp_path)
    units = pd.read_csv(tmp_path / "units.csv")
    log_p, log_u = np.log(0.25 * 0.5 * 0.1), np.log(0.2 * 0.4 * 0.4)
    by_hand = [log_p, log_p / 3, -log_p / log_u, log_p - log_u, (log_p - log_u) / 3]
    assert units.loc[0, [*MEASURES]].to_list() == pytest.approx(by_hand, abs=1e-6)
    assert units["label"].to_list() == [1, 0]
    read_back = pd.read_csv(tmp_path / "units.csv", dtype={"label": str})
    assert {f"unlabelled_acceptability/test/{name}": value
            for name, value in UnlabelledAcceptability.values(read_back, MEASURES).items()} == metrics  # fmt: skip
    other_p, other_u = np.log(0.25 * 0.1), np.log(0.4 * 0.4)
    assert metrics["unlabelled_acceptability/test/slor"] == float((log_p - log_u) / 3 > (other_p - other_u) / 2)
    assert benchmark(tmp_path, ("a b", 1), ("b", 1))(Given(), tmp_path)["unlabelled_acceptability/test/mean"] == 0.5


def labelled(seed, n=60):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    return pd.DataFrame({"unit": range(n), "label": labels, "slor": rng.integers(8, size=n) + labels})  # ties occur


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_that_of_scikit_learn(seed):
    units = labelled(seed)
    area = roc_auc_score(units["label"], units["slor"])
    assert UnlabelledAcceptability.values(units, ["slor"])["slor"] == pytest.approx(area, rel=1e-12)


def test_the_interval_has_the_variance_of_delong_and_the_mean_of_seeds():
    # DeLong, DeLong and Clarke-Pearson 1988, over placements of the units of both labels; and over resampled units.
    units = labelled(5, 400)
    sums, statistic, *_ = UnlabelledAcceptability.sums(units, "slor")
    rng = np.random.default_rng(1)
    drawn = [float(statistic(sums[rng.integers(len(sums), size=len(sums))].sum(axis=0))) for _ in range(4000)]
    good, bad = (units.loc[units["label"] == label, "slor"].to_numpy() for label in (1, 0))
    pairs = (good[:, None] > bad) + 0.5 * (good[:, None] == bad)
    variance = pairs.mean(1).var(ddof=1) / len(good) + pairs.mean(0).var(ddof=1) / len(bad)
    assert np.var(drawn) == pytest.approx(variance, rel=0.1)
    # The areas of each seed vary about the seed's own value, in any order of seeds.
    tables = [units, units.assign(slor=units["slor"] - 2 * units["label"])]  # the second is right by chance
    runs = [UnlabelledAcceptability.sums(table, "slor") for table in tables]
    mean = np.mean([run.value() for run in runs])
    assert abs(mean - runs[0].value()) > 0.05
    for ordered in (runs, runs[::-1]):
        assert UnitSums(ordered).replicates.mean() == pytest.approx(mean, abs=0.003)
