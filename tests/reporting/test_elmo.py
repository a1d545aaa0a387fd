"""Test the table of ELMo's gains, made from result folders in the format of stage train."""

import pandas as pd
import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.reporting.elmo import elmo_rows
from retable.reporting.results import read_result, tidy
from tests.reporting.specifications import REFERENCES, of_rows
from tests.reporting.specifications import lines as fields

PAIRS = {"bilstm": "bilstm_elmo"}


@pytest.fixture
def write(write_run):
    """Write the cells of a system on a task, with these values by seed."""

    def build(system, metric, *values):
        task = metric.split("/")[0]
        return [
            write_run("finetune", f"glue/{task}-{system}-{seed}", system, seed, {metric: value}, task=task)
            for seed, value in enumerate(values, start=1)
        ]

    return build


def table_of(folders, pairs=PAIRS, references=REFERENCES):
    ((table, frame),) = of_rows("elmo", elmo_rows(pairs, tidy(map(read_result, folders)), references))
    return table, frame


def test_increase_and_share_of_the_error_with_the_interval_over_seeds(write):
    """Also for a row of table 1 of the paper: from 81.1 to 85.8 is 4.7, and 24.9 % of the error."""
    before, after = [0.80, 0.82, 0.81], [0.85, 0.86, 0.864]
    folders = write("bilstm", "sst5/test/accuracy", *before) + write("bilstm_elmo", "sst5/test/accuracy", *after)
    references = pd.DataFrame({"system": ["A", "A + ELMo"], "value": [0.811, 0.858], "source": "the paper"})
    references = references.assign(corpus="sst", task="sst5", metric="accuracy", split="test")
    table, frame = table_of(folders, references=references)
    own, published = fields(table, "glue")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert {name: (value.text, value.spread) for name, value in own.items() if name not in ("Task", "Metric")} == {
        "Split": ("test", ""), "Baseline": ("BiLSTM", ""), "With ELMo": ("BiLSTM + ELMo", ""), "Runs": ("3", ""),
        "Score baseline": ("81.0", "1.0"), "Score + ELMo": ("85.8", "0.7"), "Increase absolute": ("+4.8", ""),
        "Increase 95 % interval": (f"{100 * low:+.1f} to {100 * high:+.1f}", ""),
        "Increase relative, %": (f"{100 * sum(differences) / 3 / 0.19:+.1f}", ""), "Source": ("", ""),
    }  # fmt: skip
    assert low > 0 and own["Increase absolute"].bold and len(own["Score + ELMo"].runs) == 3
    shown = [published[name].text for name in ("Baseline", "With ELMo", "Runs", "Score + ELMo", "Increase absolute")]
    assert shown == ["A", "A + ELMo", "", "85.8", "+4.7"]
    assert published["Increase relative, %"].text == "+24.9" and published["Source"].text == "the paper"
    assert frame[["low", "high"]].iloc[0].tolist() == pytest.approx([low, high])


def test_systems_without_a_common_task_are_told_and_published_ones_have_a_baseline(write):
    folders = write("bilstm", "rte/validation/accuracy", 0.5) + write("bilstm_elmo", "cola/validation/matthews", 0.5)
    with pytest.raises(UsageError, match="elmo: bilstm and bilstm_elmo have no task in common in this study"):
        table_of(folders)
    assert elmo_rows({}, tidy(map(read_result, folders)), REFERENCES).empty
    for _, scores in REFERENCES.groupby(["corpus", "task", "split", "metric"]):
        systems = set(scores["system"])
        assert {system.removesuffix(" + ELMo") for system in systems} <= systems
