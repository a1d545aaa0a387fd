import math

import pandas as pd
import pytest

from retable.reporting.published import complete
from retable.reporting.results import CELL, COLUMNS, aggregate, read_result
from retable.reporting.verdicts import ELSEWHERE, NOT_RUN
from tests.reporting.specifications import REFERENCES, heads, made


@pytest.fixture
def frame_of():
    def build(evaluated, trained=(), notes=None):
        frame = aggregate([read_result(folder) for folder in evaluated], REFERENCES)
        return complete(frame, REFERENCES, [read_result(folder) for folder in trained], notes or {})

    return build


@pytest.fixture
def kn5(write_likelihood, perplexity_of):
    return write_likelihood("evaluate", "ptb/kn5-1", "kn5", 1, [perplexity_of(141.0)] * 5, protocol="sentence-bounded")


def test_every_published_row_of_the_corpus_is_there(kn5, frame_of, write_vectors, write_run):
    frame = frame_of([kn5])
    published = REFERENCES[(REFERENCES["corpus"] == "ptb") & (REFERENCES["beside"] != "run")]
    cells = set(frame[CELL].itertuples(index=False, name=None))
    assert set(published[CELL].itertuples(index=False, name=None)) <= cells
    assert len(cells) == len(frame) and set(frame["corpus"]) == {"ptb"} and [*frame.columns] == COLUMNS
    unrun = frame[frame["n"] == 0]
    assert len(unrun) == len(published) - 1  # all but that of kn5
    assert unrun["mean"].isna().all() and (unrun["n"] == 0).all() and (unrun["runs"] == "").all()
    large = unrun.set_index(["system", "split"]).loc[("lstm_large", "test")]
    assert (large["published"], large["tolerance"], large["flops"]) == (78.4, 0.8, 1.6e16)
    assert "Zaremba" in large["source"] and large["note"] == "needs a GPU"
    assert unrun.set_index("system").loc["rnn_lda", "note"] == "no recipe; from memory"
    assert [*unrun.set_index("system").loc[["rnn_lda", "gt3"], "verdict"]] == [NOT_RUN, ELSEWHERE]
    oracle = write_run("prepare", "ptb", "oracle", 0, {"test/perplexity_word": 45.0})
    frame = frame_of([write_vectors("text8", "skipgram", 1, 40), oracle])
    assert frame["n"].all()


@pytest.mark.parametrize(
    ("beside", "shown"),
    [
        ("corpus", {("a", "m")}),
        ("data_set", {("a", "m"), ("a", "m_lower"), ("a_2017", "m")}),
        ("task", {("a", "m"), ("a", "m_lower"), ("a", "other")}),
        ("run", set()),
    ],
)
def test_published_rows_stand_beside_what_their_source_says(beside, shown):
    row = {"metric": "bleu", "split": "test", "source": "a paper", "not_run": "", "note": "", "beside": beside}
    places = [("a", "m"), ("a", "m_lower"), ("a_2017", "m"), ("a", "other"), ("b", "m")]
    published = [row | {"system": "theirs", "task": task, "corpus": corpus, "value": 9.0} for task, corpus in places]
    measured = {"system": "ours", "task": "a", "corpus": "m", "split": "test", "metric": "bleu", "note": ""}
    measured |= {"mean": 8.0, "verdict": "n/a"}
    oracle = measured | {"system": "oracle", "task": "b"}  # the oracle is not published
    frame = complete(pd.DataFrame([measured, oracle]), pd.DataFrame(published), [], {})
    unrun = frame[frame["verdict"] == ELSEWHERE]
    assert set(zip(unrun["task"], unrun["corpus"], strict=True)) == shown


def test_the_cost_is_that_of_the_own_training(write_run, write_likelihood, perplexity_of, frame_of):
    cells, trained = [], [write_run("pretrain", "grammar/lstm_small-1", "lstm_small", 1, {"flops": 7.0})]
    for seed in (1, 2):
        name = f"ptb/lstm_small-{seed}"
        cells.append(write_likelihood("evaluate", name, "lstm_small", seed, [perplexity_of(115)] * 5))
        trained.append(write_run("pretrain", name, "lstm_small", seed, {"flops": 1e14 * seed}))
    flops = frame_of(cells, trained).set_index(["system", "split", "metric"])["flops"]
    assert flops["lstm_small", "test", "perplexity_word"] == 1.5e14
    assert flops["lstm_small_tied", "test", "perplexity_word"] == 1.9e14


def test_notes_are_of_one_corpus_and_of_all_metrics(write_likelihood, perplexity_of, frame_of, write_run):
    names = ("ptb/lstm_small_tied-1", "grammar/lstm_small_tied-1")
    cells = [write_likelihood("evaluate", name, "lstm_small_tied", 1, [perplexity_of(130)] * 5) for name in names]
    frame = frame_of(cells, notes={"ptb": {"lstm_small_tied": "half of its epochs", "awd_lstm": "nine hours"}})
    notes = frame.set_index(["corpus", "system", "split", "metric"])["note"]
    of_test = notes["ptb", "lstm_small_tied", "test", "perplexity_word"]
    assert of_test == "half of its epochs; judged by the difference to lstm_small"
    assert notes["ptb", "lstm_small_tied", "test", "bits_per_byte"] == "half of its epochs"
    assert notes["ptb", "awd_lstm", "test", "perplexity_word"] == "nine hours; needs a GPU"
    assert notes["grammar", "lstm_small_tied", "test", "perplexity_word"] == ""
    cell = write_run("evaluate", "ptb/kn5-1", "kn5", 1, {"blimp/overall/accuracy": 0.6})
    (note,) = frame_of([cell], notes={"ptb": {"kn5": "half the text"}}).query("system == 'kn5'")["note"]
    assert note == "half the text"


def test_what_was_published_in_bits_stands_beside_bits(write_likelihood, frame_of):
    nats = [1.9 * 60] * 2  # units have 60 bytes
    cell = write_likelihood("evaluate", "tinyshakespeare/gpt_shakespeare-1", "gpt_shakespeare", 1, nats)
    table = made("perplexity", frame_of([cell]))
    rows = {row.values[0].key: row.values for row in table.panels["tinyshakespeare"]}
    assert list(rows) == ["gpt_shakespeare", "gpt_shakespeare_gpu"]
    place = heads(table).index("Validation bits/byte")
    shown = [(value.text, value.spread) for value in rows["gpt_shakespeare"][place : place + 3]]
    # measured: 1.9 nats per character; published: 1.88 ± 0.03
    assert shown == [(f"{1.9 / math.log(2):.4f}", ""), ("2.7123", "0.0433"), ("pass", "")]
    assert [value.text for value in rows["gpt_shakespeare_gpu"][place : place + 3]] == ["", "2.1203", ELSEWHERE]
