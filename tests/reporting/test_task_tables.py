"""Test the tables of all kinds of tasks, from result folders of ten units whose scores have closed forms."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.metrics.coreference import COLUMNS, coreference_counts, coreference_metrics
from retable.reporting.tables import write_tables
from retable.reporting.verdicts import ELSEWHERE, NOT_RUN
from tests.reporting.conftest import SPLITS
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS, framed, made, of, shown, texts
from tests.reporting.specifications import lines as rows_of
from tests.reporting.written import write_report

N = 40
ORDER = np.random.default_rng(1).permutation(N)  # order of the right units, so that neighbours are not similar
SPANS = ["spans_right", "spans_predicted", "spans_labelled"]
KEY = ["abc", "de"]


def average(n):
    """Return the mean of the three F1, by the function of the metric."""
    right, wrong = coreference_counts(KEY, KEY), coreference_counts(KEY, ["ab", "d"])
    return float(coreference_metrics(np.stack([right] * n + [wrong] * (N - n)))["average_f1"])


class Kind(NamedTuple):
    corpus: str
    right: dict  # columns of a unit that is right
    wrong: dict
    metric: str  # the main metric
    head: str  # heading of its column
    scores: Callable[[int], dict[str, float]]  # all metrics if n of ten units are right


KINDS = {
    "answers": Kind(
        "squad", {"exact_match": 1, "f1": 1.0}, {"exact_match": 0, "f1": 0.5}, "f1", "F1",
        lambda n: {"exact_match": n / N, "f1": (N + n) / (2 * N)},
    ),
    "choices": Kind(
        "swag", {"label": 3, "prediction": 3}, {"label": 3, "prediction": 1}, "accuracy", "accuracy",
        lambda n: {"accuracy": n / N},
    ),
    "coreference": Kind(
        "conll2012",
        dict(zip(COLUMNS, coreference_counts(KEY, KEY), strict=True)),
        dict(zip(COLUMNS, coreference_counts(KEY, ["ab", "d"]), strict=True)), "muc_f1", "MUC F1",
        lambda n: {"muc_f1": 2 * (N + 2 * n) / (3 * N + N + 2 * n), "average_f1": average(n)},
    ),
    "summaries": Kind(
        "cnn_dailymail", {"rouge1": 1.0}, {"rouge1": 0.25}, "rouge1", "ROUGE-1",
        lambda n: {"rouge1": (n + (N - n) / 4) / N},
    ),
    "tagging": Kind(
        "conll2000_chunking", {"words": 5, "right": 5} | dict.fromkeys(SPANS, 2),
        {"words": 5, "right": 4} | dict(zip(SPANS, (1, 2, 2), strict=True)), "f1", "F1",
        lambda n: {"accuracy": (4 * N + n) / (5 * N)} | dict.fromkeys(("precision", "recall", "f1"), (N + n) / (2 * N)),
    ),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def write(write_run, kind):
    def write(system, seed, n):
        corpus, right, wrong, metric, _, scores = KINDS[kind]
        units = pd.DataFrame([right if place < n else wrong for place in ORDER])
        units = units.assign(unit=range(N), id=range(N), document=range(N), part=0)
        metrics = {f"{kind}/{split}/{name}": score for split in SPLITS for name, score in scores(n).items()}
        more = {"task": corpus, "signatures": {metric: "x"}}
        folder = write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, **more)
        pd.concat([units.assign(split=split) for split in SPLITS]).to_csv(folder / "units.csv")
        return folder

    return write


def test_a_row_a_system_next_to_what_was_published(write, kind):
    corpus, _, _, metric, head, scores = KINDS[kind]
    frame = framed(*(write("mine", seed, 8 * seed) for seed in (1, 2, 3)), write("other", 1, 36), write("oracle", 1, N))
    frame = frame.assign(signature="")
    table = made(kind, frame[frame["task"] == kind])
    digits, head = (1 if kind == "choices" else 2), f"Test {head}"
    *_, other, bound = (row for row in rows_of(table, corpus) if row["Runs"].text)
    assert bound["System"].text.endswith("oracle)") or kind not in ("answers", "choices", "summaries")
    assert bound[head].text == f"{100:.{digits}f}" and not bound[head].bold
    apart = [row.apart for row in table.panels[corpus]]
    assert apart == [False] * (len(apart) - 1) + [bound["System"].text.endswith("(oracle)")]
    rows = shown(table, corpus)
    values = [scores(8 * seed)[metric] for seed in (1, 2, 3)]
    assert (rows["mine"]["Runs"], rows["mine"][head]) == ("3", f"{100 * np.mean(values):.{digits}f}")
    assert rows["other"][head] == f"{100 * scores(36)[metric]:.{digits}f}" and of(other["System"]) == "other"
    shown_always = REFERENCES["beside"] == "corpus"
    published = REFERENCES[(REFERENCES["task"] == kind) & (REFERENCES["corpus"] == corpus) & shown_always]
    assert len(published) and {*published["system"]} | {"mine", "other"} == {*rows} - {of(bound["System"])}
    for row in published.itertuples():
        (fields,) = (each for each in texts(table, corpus) if each[0] == row.system)
        assert f"{100 * row.value:.{digits}f}" in fields and not rows[row.system]["Runs"]
        assert (NOT_RUN if row.not_run else ELSEWHERE) in fields


def test_intervals_are_over_units_and_spreads_over_seeds(write, kind):
    scores = KINDS[kind].scores
    frame = framed(*(write("mine", seed, 8 * seed) for seed in (1, 2, 3)))
    own = frame[(frame["system"] == "mine") & (frame["split"] == "test")].set_index("metric")
    for metric in scores(1):
        cell, values = own.loc[metric], [scores(8 * seed)[metric] for seed in (1, 2, 3)]
        assert (cell["n"], cell["mean"]) == (3, pytest.approx(np.mean(values)))
        assert cell["std"] == pytest.approx(np.std(values, ddof=1)) and cell["p_best"] == 1
        assert min(scores(0)[metric], 0.01) < cell["ci_low"] < cell["mean"] < cell["ci_high"] < 1
    alone = framed(write("alone", 1, N // 2)).set_index(["system", "split", "metric"])
    for metric in scores(1):  # the number of right units has a standard deviation of √N / 2
        slope = scores(N // 2 + 1)[metric] - scores(N // 2)[metric]
        ends = alone.loc[("alone", "test", metric), ["ci_low", "ci_high"]].astype(float)
        assert np.ptp(ends) == pytest.approx(2 * 2.02 * slope * np.sqrt(N) / 2, rel=0.4)  # with words: half


def test_units_that_contradict_the_metrics_are_refused(write, kind, tmp_path):
    folder, (metric, *_) = write("mine", 1, 5), KINDS[kind].scores(1)
    (folder / "metrics.json").write_text(f'{{"{kind}/test/{metric}": 0.875}}')
    with pytest.raises(UsageError, match=rf"has {metric} 0\.875 on test, but its units give"):
        write_tables(framed(folder), SPECIFICATIONS, tmp_path)


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
        "two seeds; test, test 2017: weights are averaged over all steps, but in the paper over ten epochs; "
        "test 2017, test coco: the published number is quoted from memory"
    )
