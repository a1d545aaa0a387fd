"""The table of translations, from result folders as the translate stage leaves them."""

import pytest

from tests.reporting.specifications import SPECIFICATIONS
from tests.reporting.written import write_report

SIGNATURES = {"bleu": "nrefs:1|case:mixed|tok:13a|version:2", "chrf": "nrefs:1|nc:6|version:2"}


@pytest.fixture
def write_translator(write_run):
    def write(corpus, system, seed, bleu):
        metrics = {"steps": 9.0, "validation/loss": 2.0}
        for task, less in (("translation", 0), ("translation_2017", 5)):
            scores = {"bleu": bleu - less, "bleu_lowercase": bleu + 1, "bleu_words": bleu - 2, "chrf": bleu + 20 - less}
            metrics |= {f"{task}/test/{name}": score for name, score in scores.items()}
        more = {"task": "translation", "protocol": "beam_5", "signatures": SIGNATURES | {"bleu_words": "x"}}
        return write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, **more)

    return write


@pytest.fixture
def report(write_translator, tmp_path):
    """The tables of a report by name, and its folder."""

    def build(*cells, **more):
        folders = [write_translator(*cell) for cell in cells]
        tables = write_report("small", {"finetune": folders}, out := tmp_path / "results", SPECIFICATIONS, **more)
        return {table.name: table for table in tables}, out

    return build


def test_a_translator_is_judged_by_what_was_published_of_it(report):
    notes = {"multi30k_lowercase": {"transformer_translation_tiny": "two seeds"}}
    cells = [("multi30k_lowercase", "transformer_translation_tiny", seed, 41.5) for seed in (1, 2)]
    tables, _ = report(*cells, notes=notes)
    (row,) = tables["translation"].panels["multi30k_lowercase"]
    place = [column.title for column in tables["translation"].columns].index("BLEU")
    assert [(value.text, value.spread) for value in row.values[place : place + 3]] == [
        ("41.50", "0.00"), ("41.02", "0.70"), ("pass, other recipe", "")
    ]  # fmt: skip
    assert row.values[-1].text == (
        "two seeds; test, test 2017: the mean is of every step's weights, the published one of ten epochs'; "
        "test 2017, test coco: from memory"
    )
