"""The table of what ELMo adds, from result folders as the train stage leaves them."""

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
    """Cells of a system on a task, given its metrics by seed."""

    def build(stage, corpus, task, system, seeds):
        return [
            write_run(stage, f"{corpus}/{task}-{system}-{seed}", system, seed, metrics, task=task)
            for seed, metrics in seeds.items()
        ]

    return build


def of(name, *values):
    return {seed: {name: value} for seed, value in enumerate(values, start=1)}


def table_of(folders, pairs=PAIRS, references=REFERENCES):
    ((table, frame),) = of_rows("elmo", elmo_rows(pairs, tidy(map(read_result, folders)), references))
    return table, frame


def test_increase_and_share_of_the_error_with_the_interval_over_seeds(write):
    """And table 1's own row, in which 81.1 to 85.8 is 4.7 and 24.9 %."""
    before, after = [0.80, 0.82, 0.81], [0.85, 0.86, 0.864]
    folders = write("finetune", "glue", "sst5", "bilstm", of("sst5/test/accuracy", *before))
    folders += write("finetune", "glue", "sst5", "bilstm_elmo", of("sst5/test/accuracy", *after))
    references = pd.DataFrame({"system": ["A", "A + ELMo"], "value": [0.811, 0.858], "source": "the paper"})
    references = references.assign(corpus="sst", task="sst5", metric="accuracy", split="test")
    table, frame = table_of(folders, references=references)
    own, published = fields(table, "glue")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert {name: (value.text, value.spread) for name, value in own.items() if name not in ("Task", "Metric")} == {
        "Split": ("test", ""), "Baseline": ("bilstm", ""), "With ELMo": ("bilstm_elmo", ""), "Runs": ("3", ""),
        "Score baseline": ("81.0", "1.0"), "Score + ELMo": ("85.8", "0.7"), "Increase absolute": ("+4.8", ""),
        "Increase 95 % interval": (f"{100 * low:+.1f} to {100 * high:+.1f}", ""),
        "Increase relative, %": (f"{100 * sum(differences) / 3 / 0.19:+.1f}", ""), "Source": ("", ""),
    }  # fmt: skip
    assert low > 0 and own["Increase absolute"].bold and len(own["Score + ELMo"].runs) == 3
    shown = [published[name].text for name in ("Baseline", "With ELMo", "Runs", "Score + ELMo", "Increase absolute")]
    assert shown == ["A", "A + ELMo", "", "85.8", "+4.7"]
    assert published["Increase relative, %"].text == "+24.9" and published["Source"].text == "the paper"
    assert frame[["low", "high"]].iloc[0].tolist() == pytest.approx([low, high])


def test_coreference_is_compared_by_its_average_and_taggers_by_their_corpus(write):
    folders = write("finetune", "texts", "documents", "ranker", of("coreference/test/average_f1", 0.6))
    folders += write("finetune", "texts", "documents", "ranker_elmo", of("coreference/test/average_f1", 0.7))
    (own,) = fields(table_of(folders, {"ranker": "ranker_elmo"}, REFERENCES.iloc[:0])[0], "texts")
    assert (own["Metric"].text, own["Increase absolute"].text) == ("average F1", "+10.0")
    folders = []
    for corpus, name in (("conll2000_chunking", "f1"), ("grammar_pos", "accuracy")):
        for system, value in (("crf", 0.9), ("elmo_tagger", 1.0)):
            folders += write("finetune", corpus, corpus, system, of(f"tagging/test/{name}", value, value))
    references = REFERENCES[REFERENCES["system"] == "bilstm_crf_senna"]
    other = references.assign(corpus="conll2003_ner", system=["A"], value=0.9015)
    references = pd.concat([references, other, other.assign(system="A + ELMo", value=0.9222)])
    table, _ = table_of(folders, {"crf": "elmo_tagger"}, references)
    assert [*table.panels] == ["conll2000_chunking", "grammar_pos"]
    (row,) = fields(table, "conll2000_chunking")
    assert (row["Metric"].text, row["Increase absolute"].text) == ("F1", "+10.00")
    (back,) = of_rows("elmo", elmo_rows({"elmo_tagger": "crf"}, tidy(map(read_result, folders)), references))
    assert back[1]["relative"].isna().all()  # where there was no error, no share of it is gone


def test_a_loss_is_negative_and_one_run_has_no_interval(write):
    folders = write("finetune", "glue", "mrpc", "bilstm", of("mrpc/validation/f1", 0.8))
    folders += write("finetune", "glue", "mrpc", "bilstm_elmo", of("mrpc/validation/f1", 0.75))
    table, _ = table_of(folders, references=REFERENCES.iloc[:0])
    (own,) = fields(table, "glue")
    assert (own["Increase absolute"].text, own["Increase relative, %"].text) == ("-5.0", "-25.0")
    assert "Increase 95 % interval" not in own and not own["Increase absolute"].bold
    assert (own["Task"].text, own["Metric"].text, own["Split"].text) == ("MRPC", "F1", "validation")


def test_tasks_stand_in_the_order_of_glue_with_what_was_published(write):
    folders = []
    names = "sst5/test/accuracy stsb/validation/pearson sst5/validation/accuracy cola/validation/matthews"
    for name in names.split():
        for system, value in (("bilstm", -0.1), ("bilstm_elmo", 0.1)):
            folders += write("finetune", "glue", name.replace("/", "-"), system, of(name, value))
    table, frame = table_of(folders)
    assert [(row["Task"].text, row["Baseline"].text, row["With ELMo"].text) for row in fields(table, "glue")] == [
        ("CoLA", "bilstm", "bilstm_elmo"), ("CoLA", "ST BiLSTM", "ST BiLSTM + ELMo"),
        ("STS-B", "bilstm", "bilstm_elmo"), ("STS-B", "ST BiLSTM", "ST BiLSTM + ELMo"),
        ("sst5", "bilstm", "bilstm_elmo"), ("sst5", "BCN", "BCN + ELMo"),
    ]  # fmt: skip
    cola = fields(table, "glue")[1]
    assert cola["Increase absolute"].text == "+26.5" and cola["Increase relative, %"].text == "+32.2"
    assert frame["relative"].iloc[0] == pytest.approx(0.2 / 1.1)  # from a score below 0


def test_systems_without_a_common_task_are_told_and_published_ones_have_a_baseline(write):
    folders = write("finetune", "glue", "rte", "bilstm", of("rte/validation/accuracy", 0.5))
    folders += write("finetune", "glue", "cola", "bilstm_elmo", of("cola/validation/matthews", 0.5))
    with pytest.raises(UsageError, match="elmo: bilstm and bilstm_elmo have no task in common in this study"):
        table_of(folders)
    assert elmo_rows({}, tidy(map(read_result, folders)), REFERENCES).empty
    for _, scores in REFERENCES.groupby(["corpus", "task", "split", "metric"]):
        systems = set(scores["system"])
        assert {system.removesuffix(" + ELMo") for system in systems} <= systems
