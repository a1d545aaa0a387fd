"""The table of translations, from result folders as the translate stage leaves them."""

from tests.reporting.specifications import SPECIFICATIONS
from tests.reporting.written import write_report

SIGNATURES = {"bleu": "nrefs:1|case:mixed|tok:13a|version:2", "chrf": "nrefs:1|nc:6|version:2"}


def test_a_translator_is_judged_by_what_was_published_of_it(write_run, tmp_path):
    corpus, system = "multi30k_lowercase", "transformer_translation_tiny"
    metrics = {"steps": 9.0, "validation/loss": 2.0}
    for task, less in (("translation", 0), ("translation_2017", 5)):
        scores = {"bleu": 41.5 - less, "bleu_lowercase": 42.5, "bleu_words": 39.5, "chrf": 61.5 - less}
        metrics |= {f"{task}/test/{name}": score for name, score in scores.items()}
    more = {"task": "translation", "protocol": "beam_5", "signatures": SIGNATURES | {"bleu_words": "x"}}
    folders = [write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, **more) for seed in (1, 2)]
    notes = {corpus: {system: "two seeds"}}
    (table,) = write_report("small", {"finetune": folders}, tmp_path / "results", SPECIFICATIONS, notes=notes)
    (row,) = table.panels[corpus]
    place = [column.title for column in table.columns].index("BLEU")
    assert [(value.text, value.spread) for value in row.values[place : place + 3]] == [
        ("41.50", "0.00"), ("41.02", "0.70"), ("pass, other recipe", "")
    ]  # fmt: skip
    assert row.values[-1].text == (
        "two seeds; test, test 2017: the mean is of every step's weights, the published one of ten epochs'; "
        "test 2017, test coco: from memory"
    )
