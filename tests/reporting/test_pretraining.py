"""Test tables and figures of what pretrained models know, made from result folders in the format of benchmarks."""

import json

import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.reporting.learning_curves import learning_curves
from retable.reporting.markup import latex_table, markdown_table
from retable.reporting.pretraining import senses_figures
from retable.reporting.results import read_result
from retable.reporting.tables import write_tables
from tests.reporting import charts
from tests.reporting.charts import ends, line, marks
from tests.reporting.specifications import SPECIFICATIONS, fields, framed, lines, shown
from tests.reporting.written import write_report

MASKED = {"alone": 1.5, "alone_corrupted": 1.25, "accuracy": 0.55, "corrupted": 1.375}
BOUND = {f"masked/{name}": value for name, value in MASKED.items()}
BOUND |= {f"masked/{name}_standard_error": 0.0625 for name in MASKED}
PAIRS = {"next_sentence/accuracy": 0.92, "next_sentence/accuracy_standard_error": 0.014}
PAIRS |= {"sentence_order/accuracy": 0.75, "sentence_order/accuracy_standard_error": 0.02}
BERT = {"loss": 2.0, "masked_accuracy": 0.4, "next_sentence_loss": 0.5, "next_sentence_accuracy": 0.8}
ELECTRA = {"loss": 14.0, "generator_loss": 2.5, "discriminator_loss": 0.23, "replaced": 0.1}
ELECTRA |= {"replaced_accuracy": 0.93, "replaced_recall": 0.5}


@pytest.fixture
def write_held_out(write_run):
    def write(system, seed, metrics):
        metrics = {f"held_out/{name}": value for name, value in metrics.items()}
        protocol = "corrupted as in training"
        return write_run("evaluate", f"grammar/{system}-{seed}-held_out", system, seed, metrics, protocol=protocol)

    return write


@pytest.fixture
def held_out(write_held_out, write_run):
    """Write held-out metrics of every objective, and bounds, which were measured with bert and with t5."""
    return [
        write_held_out("t5", 1, {"loss": 0.75, "accuracy": 0.75}),
        write_held_out("electra", 1, ELECTRA),
        write_held_out("bert", 1, BERT),
        write_held_out("bert", 2, BERT | {"loss": 2.25, "next_sentence_accuracy": 0.9}),
        write_held_out("bert_words", 1, {"loss": 1.75, "masked_accuracy": 0.5}),
        write_held_out("bert_worse", 1, BERT | {"loss": 2.5}),
        write_run("evaluate", "grammar/bert-1-masked_bound", "bert", 1, BOUND, protocol="corrupted as in training"),
        write_run("evaluate", "grammar/t5-1-sentence_pairs_bound", "t5", 1, PAIRS),
    ]


def test_bounds_are_the_grammars_and_stand_apart(held_out, tmp_path):
    (table,) = write_tables(framed(*held_out), SPECIFICATIONS, tmp_path / "results")
    assert [row.apart for row in table.panels["grammar"][5:]] == [True, False, False, False, False]
    found = {}
    for row in lines(table, "grammar")[5:]:
        head, *numbers = row.items()
        found[head[1].text] = {name: (value.text, value.spread) for name, value in numbers if value.text}
    assert found == {
        "bound (grammar)": {"Masked words nats": ("1.375", "0.062")},
        "bound, one word corrupted (grammar)": {"Masked words nats": ("1.250", "0.062")},
        "one word masked (grammar)": {
            "Masked words nats": ("1.500", "0.062"),
            "Masked words accuracy": ("55.0", "6.2"),
        },
        "reference classifier of next sentences (grammar)": {"Pairs of segments accuracy": ("92.0", "1.4")},
        "reference classifier of sentence order (grammar)": {"Pairs of segments accuracy": ("75.0", "2.0")},
    }
    assert not any(value.bold for row in table.panels["grammar"] for value in row.values)
    for markup in (markdown_table, latex_table):
        assert "bound (grammar)" in markup(table)


def test_no_system_owns_a_bound_and_other_tables_see_none(held_out, write_likelihood, perplexity_of, tmp_path):
    likelihood = write_likelihood("evaluate", "grammar/gpt-1-perplexity", "gpt", 1, [perplexity_of(40)] * 5)
    out = tmp_path / "results"
    tables = write_report("small", {"evaluate": [*held_out, likelihood]}, out, SPECIFICATIONS)
    assert [table.name for table in tables] == ["perplexity", "held_out"]
    assert [row.values[0].text for row in tables[0].panels["grammar"]] == ["GPT"]
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["oracle"] == pytest.approx(BOUND | PAIRS)
    assert metrics["bert"]["held_out/masked_accuracy"] == 0.4
    assert metrics["t5"].keys() == {"held_out/loss", "held_out/accuracy"}
    rows = pd.read_csv(out / "held_out.csv")
    assert set(rows.loc[rows["task"] == "masked", "system"]) == {"oracle"}
    assert set(rows["protocol"].dropna()) == {"corrupted as in training"}
    assert rows.loc[rows["system"] == "oracle", "protocol"].isna().all()


def test_a_bound_alone_is_no_table_and_two_are_one_too_many(write_run, tmp_path):
    bounds = [write_run("evaluate", f"grammar/{name}-1-masked_bound", name, 1, BOUND) for name in ("gpt", "bert")]
    assert write_tables(framed(*bounds[:1]), SPECIFICATIONS, tmp_path / "results") == []
    with pytest.raises(UsageError, match="both have the oracle of grammar with seed 1; leave one of them out"):
        framed(*bounds)


@pytest.fixture
def senses(write_run):
    def write(system, seed, nearest, majority=0.5):
        metrics = {"senses/occurrences": 400.0, "senses/majority": majority}
        for layer, share in enumerate(nearest):
            metrics |= {f"senses/layer_{layer}/nearest": share, f"senses/layer_{layer}/centroid": share - 0.1}
        return write_run("evaluate", f"grammar/{system}-{seed}-senses", system, seed, metrics)

    cells = [("elmo", 1, [0.5, 0.8, 0.7]), ("elmo", 2, [0.5, 0.9, 0.7]), ("bert", 1, [0.5, *[0.6] * 9, 0.95])]
    return framed(*(write(*cell) for cell in cells))


def test_senses_by_layer(senses, tmp_path):
    (table,) = write_tables(senses, SPECIFICATIONS, tmp_path / "results")
    rows = [[(value.text, value.spread) for value in row.values] for row in table.panels["grammar"]]
    assert [row[1][0] for row in rows] == [*map(str, range(11)), "0", "1", "2", ""]  # 10 comes after 9
    assert rows[10][0] == ("BERT", "") and rows[10][4:] == [("95.0", ""), ("85.0", "")]
    assert rows[12] == [("ELMo", ""), ("1", ""), ("2", ""), ("400", ""), ("85.0", "7.1"), ("75.0", "7.1")]
    assert [text for text, _ in rows[14]] == ["most frequent sense", "", "", "", "50.0", "50.0"]
    assert [i for i, row in enumerate(table.panels["grammar"]) if row.apart] == [11, 14]


def test_steering_has_a_row_for_each_kind_of_sentences(write_run, tmp_path):
    scores = {"label": (0.45, 0.95), "grammatical": (0.9, 0.875)}
    scores |= {"nats_sentence": (30.0, 31.5), "true_nats_token": (2.0, 1.875)}
    kinds = ("sampled", "steered")
    metrics = {f"steering/{kind}/{name}": both[i] for name, both in scores.items() for i, kind in enumerate(kinds)}
    more = {1: {}, 2: {"steering/steered/label": 0.97}}
    runs = [write_run("evaluate", f"grammar/lstm-{n}-steering", "lstm", n, metrics | more[n]) for n in more]
    (table,) = write_tables(framed(*runs), SPECIFICATIONS, tmp_path / "results")
    rows = fields(table, "grammar")
    assert {*rows} == {f"LSTM, {kind}" for kind in kinds}
    assert {name: text for name, text in shown(table, "grammar")["LSTM, steered"].items() if text} == {
        "Sentences": "LSTM, steered", "label, %": "96.0", "grammatical, %": "87.5", "Runs": "2",
        "By the model nats per sentence": "31.50", "By the true distribution per token": "1.875",
    }  # fmt: skip
    assert rows["LSTM, steered"]["label, %"].spread == "1.4"


def test_senses_figure_has_two_lines_a_system(senses):
    (figure,) = senses_figures(senses).values()
    assert line(figure, "elmo", "nearest") == ([0, 1, 2], pytest.approx([50, 85, 70]))
    assert line(figure, "elmo", "centroid") == ([0, 1, 2], pytest.approx([40, 75, 60]))
    assert line(figure, "bert", "nearest")[0] == [*range(11)]  # 10 comes after 9
    assert ends(figure) == {"bert": 95, "elmo": 70, "Most frequent sense": 50}
    assert {"BERT", "ELMo", "Most frequent sense"} <= set(charts.texts(figure))
    assert senses_figures(senses[senses["task"] == "none"]) == {}


def test_learning_curves_part_kinds_of_loss_and_know_the_bound(write_run, write_curve):
    def write(system, tokens, objective, scorer="", rate=0.15):
        folder = write_run("pretrain", f"grammar/{system}-1", system, 1, {})
        target = f"objective:\n  _target_: retable.objectives.{objective}.Any\n{scorer}"
        config = f"tokens: {tokens}\n{target}batches: {{rate: {rate}, masking: token}}\n"
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        write_curve(folder, [3.0, 2.0])
        return read_result(folder)

    bound = write_run("evaluate", "grammar/bert-1-masked_bound", "bert", 1, BOUND)
    (bound.parent / "config.yaml").write_text("tokens: grammar/word_marked\n", encoding="utf-8")
    scorer = "validation_scorer: {window: 3}\n"
    results = [
        write("gpt", "grammar/word", "causal_lm", scorer),
        write("big", "grammar/word", "sampled_softmax", scorer),
        write("bert", "grammar/word_marked", "masked_lm"),
        write("bert_pieces", "grammar/wordpiece_uncased", "masked_lm"),
        write("t5", "grammar/word_marked", "text_to_text"),
        read_result(bound),
    ]
    figures = learning_curves(results)
    assert {name: set(ends(figure)) for name, figure in figures.items()} == {
        "pretrain · grammar": {"gpt", "big"},
        "pretrain · grammar · masked_lm · grammar/word_marked": {"bert", "True distribution"},
        "pretrain · grammar · masked_lm · grammar/wordpiece_uncased": {"bert_pieces"},
        "pretrain · grammar · text_to_text": {"t5"},
    }
    bounded = figures["pretrain · grammar · masked_lm · grammar/word_marked"]
    assert ends(bounded)["True distribution"] == BOUND["masked/corrupted"]
    assert len(marks(bounded.to_dict(), "rule")) == 2  # including the lines that lead to names
    assert [*learning_curves([*results[:3], results[-1]])][1] == "pretrain · grammar · masked_lm"
    more = write("bert_more", "grammar/word_marked", "masked_lm", rate=0.3)  # it has another bound
    figure = learning_curves([more, results[-1]])["pretrain · grammar · masked_lm"]
    assert set(ends(figure)) == {"bert_more"}


@pytest.mark.parametrize(
    ("objective", "corruption", "bound"),
    [
        ("text_to_text", "{_target_: retable.data.corruption.RandomSpans, density: 0.15, mean: 3.0}", 1.5),
        ("text_to_text", "{_target_: retable.data.corruption.RandomSpans, density: 0.5, mean: 3.0}", None),
        ("text_to_text", "{_target_: retable.data.corruption.Deshuffling}", None),
        ("prefix_lm", "{_target_: retable.data.corruption.Prefix}", 2.5),
    ],
)
def test_targets_have_the_bound_of_their_corruption(write_run, write_curve, objective, corruption, bound):
    trained = write_run("pretrain", "grammar/t5-1", "t5", 1, {})
    target = f"objective: {{_target_: retable.objectives.{objective}.Any}}\nbatches: {{corruption: {corruption}}}\n"
    (trained / "config.yaml").write_text(f"tokens: grammar/word_marked\n{target}", encoding="utf-8")
    write_curve(trained, [3.0, 2.0])
    bounds = write_run("evaluate", "grammar/t5-1-spans_bound", "t5", 1, {"spans/loss": 1.5, "prefix/loss": 2.5})
    (bounds.parent / "config.yaml").write_text("tokens: grammar/word_marked\n", encoding="utf-8")
    (figure,) = learning_curves([read_result(trained), read_result(bounds)]).values()
    assert ends(figure) == {"t5": 2.0} | ({} if bound is None else {"True distribution": bound})
