"""Recorded bands: what is told of a table that keeps to them, and of one that does not."""

from types import SimpleNamespace

import pandas as pd
import pytest

from pipelines.bands import bands, judged
from pipelines.entry import CONF
from retable.errors import UsageError
from retable.plan.conf import Conf
from retable.plan.study import expand, read_study
from tests.pipelines.conftest import Project

KEY = ["system", "task", "split", "metric"]
LINEAGE = pd.DataFrame(
    [
        ("kn5", "", "test", "perplexity_word", 9.5, ""),
        ("elman", "", "test", "perplexity_word", 9.0, "better"),
        ("lstm", "", "test", "perplexity_word", 9.01, "undecided"),
        ("published", "", "test", "perplexity_word", "", "not run"),
    ],
    columns=[*KEY, "mean", "verdict"],
)


@pytest.mark.parametrize(
    ("band", "holds", "found"),
    [
        (["elman", "better"], True, "elman test perplexity_word = better, expected better"),
        (["lstm", "better"], False, "lstm test perplexity_word = undecided, expected better"),
        (["lstm", "undecided"], True, "lstm test perplexity_word = undecided, expected undecided"),
        (["gpt", "better"], False, "gpt test perplexity_word = missing, expected better"),
        (["elman", 8.9, 9.1], True, "elman test perplexity_word = 9, band 8.9 to 9.1"),
        (["elman", 9.1, 9.2], False, "elman test perplexity_word = 9, band 9.1 to 9.2"),
        (["gpt", 8, 9], False, "gpt test perplexity_word = nan, band 8 to 9"),
        (["published", 8, 9], False, "published test perplexity_word = nan, band 8 to 9"),
    ],
)
def test_a_band_is_of_a_mean_or_of_a_verdict(band, holds, found):
    system, *expected = band
    assert [*judged(LINEAGE, [[system, "", "test", "perplexity_word", *expected]])] == [(holds, found)]


def test_a_band_is_of_one_row():
    twice = pd.concat([LINEAGE, LINEAGE])
    with pytest.raises(UsageError, match="several rows are of lstm test perplexity_word, and a band is of one"):
        [*judged(twice, [["lstm", "", "test", "perplexity_word", "better"]])]


@pytest.mark.parametrize(
    ("row", "is_band"),
    [
        (["lstm", "", "test", "perplexity_word", "better"], True),
        (["lstm", "", "test", "perplexity_word", 8, 9.5], True),
        (["lstm", "", "test", "perplexity_word", 8], False),
        (["lstm", "", "test", "perplexity_word"], False),
        (["lstm", "test", "perplexity_word", 8, 9], False),
        (["lstm", "", "test", "perplexity_word", "8", 9], False),
        ("lstm", False),
    ],
)
def test_a_band_is_a_row_and_what_is_expected_of_it(row, is_band):
    said = {"corpus": "ptb", "systems": [{"of": "lstm"}], "bands": {"perplexity": [row]}}
    if is_band:
        assert expand(Conf(CONF), "mine", said).reported["bands"] == said["bands"]
    else:
        with pytest.raises(UsageError, match=r"study mine: bands: .* can't be read; write bands: "):
            expand(Conf(CONF), "mine", said)


@pytest.mark.parametrize("row", [["lstm", "", "test", "perplexity_word", 8, 9], ["lstm", "", "", "x", "better"]])
def test_a_table_without_what_a_band_is_of_is_named(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.bands.read_study", lambda *_: SimpleNamespace(reported={"bands": {"x": [row]}}))
    (tmp_path / "results/mine").mkdir(parents=True)
    LINEAGE[KEY].to_csv(tmp_path / "results/mine/x.csv", index=False)
    asked = "mean" if len(row) == 6 else "verdict"
    with pytest.raises(UsageError, match=rf"x\.csv has no {asked}, which its bands are of; name another table"):
        bands("mine")


def test_a_drift_is_a_line_and_exit_code_1(tmp_path, forks):
    folder = tmp_path / "results/smoke"
    folder.mkdir(parents=True)
    recorded = read_study(Conf(CONF), "smoke").reported["bands"]
    means = {table: [(*row[:4], (row[4] + row[5]) / 2) for row in rows] for table, rows in recorded.items()}

    def made():
        for table, rows in means.items():
            pd.DataFrame(rows, columns=[*KEY, "mean"]).to_csv(folder / f"{table}.csv", index=False)
        return Project(tmp_path, forks).run("command", "bands", "smoke")

    kept = made()
    assert kept.returncode == 0 and "DRIFT" not in kept.stdout
    assert kept.stdout.count("ok   ") == sum(map(len, means.values()))
    *key, mean = means["perplexity"][0]
    means["perplexity"][0] = (*key, 2 * mean)
    drifted = made()
    assert drifted.returncode == 1 and drifted.stdout.count("DRIFT perplexity: oracle") == 1
