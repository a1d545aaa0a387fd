from io import StringIO

import numpy as np
import pandas as pd
import pytest

from retable.reporting.alignments import alignment_map
from retable.reporting.figures import rounded
from retable.reporting.heat_map import FAINT
from retable.reporting.learning_curves import DECAY, ENOUGH, NOISE, learning_curves, still_falling
from retable.reporting.results import read_result
from retable.reporting.vectors import planes
from tests.reporting.charts import ends, line, marks, specified, subtitle, table, tables, texts


@pytest.fixture
def write_losses(write_run):
    def write(system, seed, training, validation):
        folder = write_run("pretrain", f"grammar/{system}-{seed}", system, seed, {})
        rows = [(10 * step, "train/loss", loss) for step, loss in enumerate(training)]
        rows += [(10 * step, "validation/loss", loss) for step, loss in enumerate(validation)]
        pd.DataFrame(rows, columns=["step", "metric", "value"]).to_csv(folder / "curve.csv", index=False)
        return read_result(folder)

    return write


@pytest.mark.parametrize(
    ("curves", "falls"),
    [
        ([[5.0, 4.5]], 0.5),
        ([[5.0, 4.5, 4.5 - NOISE / 2]], None),
        ([[5.0, 4.5, 4.4]], 0.1),
        ([[4.0, 4.5, 4.4]], None),  # higher than in the epoch before
        ([[5.0, 4.4, 4.4, 4.6]], None),
        ([[5.0, *[4.0] * 19, 3.99999]], None),  # a step after the end of the epoch
        ([[5.0, *[4.0] * 12, 3.9, 3.8, 3.79]], 0.11),  # the last tenth of points counts as one
        ([[5.0, 4.5, 4.4], [5.0, 4.6, 4.5]], 0.1),  # both fall by more than they differ
        ([[5.0, 4.5, 4.4], [5.0, 5.6, 5.2]], None),  # changes 0.1 and -0.2 on average
        ([[5.0, 4.5, 4.4], [5.0, 4.2, 4.1]], None),  # the seeds differ by more than the change
        ([[4.0]], None),
    ],
)  # fmt: skip
def test_a_loss_that_was_still_falling_is_noted(curves, falls, write_losses):
    runs = [write_losses("lstm", seed, [6.0] * len(each), each) for seed, each in enumerate(curves, 1)]
    runs.append(write_losses("gpt", 1, [6.0] * 3, [4.0, 4.0, 4.0]))
    said, steps = "LSTM on grammar: the validation loss still fell by", 10 * (len(curves[0]) - 1)
    told = f"nats in the last tenth of the training ({steps} steps)"
    assert still_falling(runs) == [f"{said} {fall:.2f} {told}" for fall in [falls] if fall]


def test_training_losses_are_smoothed_means_in_the_band_of_the_seeds(write_losses):
    losses = np.random.default_rng(0).uniform(1, 5, (2, 30))
    runs = [write_losses("lstm", seed, own, [4.0 + seed, 2.0 + seed]) for seed, own in enumerate(losses)]
    (figure,) = learning_curves(runs).values()
    average, smooth = np.zeros(2), []
    for n, both in enumerate(losses.T, 1):
        average = DECAY * average + (1 - DECAY) * both
        smooth.append(average / (1 - DECAY**n))
    rows = table(figure, "low")
    training, validation = (rows[rows["variant"] == f"{name} loss"] for name in ("training", "validation"))
    assert training["x"].tolist() == [10 * step for step in range(30)]
    np.testing.assert_allclose(training["y"], np.mean(smooth, axis=1), rtol=1e-4)
    np.testing.assert_allclose(training["low"], np.min(smooth, axis=1), rtol=1e-4)
    np.testing.assert_allclose(training["high"], np.max(smooth, axis=1), rtol=1e-4)
    assert validation["y"].tolist() == [4.5, 2.5] and validation["low"].tolist() == [4, 2]
    assert ends(figure) == {"lstm": pytest.approx(np.mean(smooth[-1]), rel=1e-4)}  # ends of lines, not of points
    assert f"decay {DECAY}" in subtitle(figure)
    assert len(marks(specified(figure), "area")) == 1
    assert not marks(learning_curves(runs[:1])["pretrain · grammar"].to_dict(), "area")  # no band with one seed


def test_enough_validation_losses_are_the_line(write_losses):
    many = [6.0 - i / 10 for i in range(ENOUGH)]
    gpt = write_losses("gpt", 1, [9.0] * 20, many)
    (figure,) = learning_curves([gpt, write_losses("lstm", 1, [9.0] * 20, many)]).values()
    assert set(table(figure, "variant")["variant"]) == {"validation loss"}
    assert line(figure, "lstm") == ([10 * i for i in range(ENOUGH)], pytest.approx(many))
    (figure,) = learning_curves([gpt, write_losses("rnn", 1, [9.0] * 20, many[1:])]).values()
    assert line(figure, "gpt", "training loss")[1] == [9.0] * 20


def test_training_loss_stands_in_and_no_curve_is_no_figure(write_losses, write_run, write_curve):
    folder = write_run("embed", "grammar/skipgram-1", "skipgram", 1, {})
    assert learning_curves([read_result(folder)]) == {}
    frame = pd.DataFrame({"step": [0, 1], "metric": "train/loss", "value": [3.0, 2.0]})
    frame.to_csv(folder / "curve.csv", index=False)
    figures = learning_curves([write_losses("lstm", 1, [], [6.0, 5.0]), read_result(folder)])
    assert list(figures) == ["embed · grammar", "pretrain · grammar"]
    assert "line: training loss" in subtitle(figures["embed · grammar"])
    frame.assign(metric="train/accuracy").to_csv(folder / "curve.csv", index=False)
    assert learning_curves([read_result(folder)]) == {}
    folder = write_run("finetune", "grammar/bert-1", "bert", 1, {"cola/test/matthews": 0.5})
    (folder / "config.yaml").write_text("tokens: grammar/word\nobjective: {next_sentence: false}\n", encoding="utf-8")
    write_curve(folder, [2.0, 1.0])
    assert set(learning_curves([read_result(folder)])) == {"finetune · grammar"}


def test_planes_join_their_pairs(write_plane):
    places = [((1.0, 2.0), (-1.0, 2.0)), ((1.1, 2.0), (-1.2, 0.0))]
    folders = [
        write_plane("grammar/glove-1", "glove", 1, places),
        write_plane("grammar/skipgram-2", "skipgram", 2, [((9.0, 9.0), (8.0, 8.0))]),
        write_plane("grammar/skipgram-1", "skipgram", 1, places[:1]),
    ]
    (figure,) = planes(read_result(folder) for folder in folders).values()
    specification = specified(figure)
    assert [panel["title"] for panel in specification["concat"]] == ["GloVe", "Skip-gram"]
    assert [mark["encoding"]["detail"]["field"] for mark in marks(specification, "line")] == ["pair"] * 2
    glove, skipgram = tables(figure, "word")
    for number, pair in glove.groupby("pair"):
        assert {tuple(point) for point in pair[["x", "y"]].to_numpy()} == set(places[number])
    assert skipgram["word"].tolist() == ["word00", "word01"]  # words of the first seed
    heights = glove.set_index("word")["place"]
    assert abs(heights["word00"] - heights["word10"]) > 0.05  # the points nearly coincide, but the names must not
    assert heights[["word01", "word11"]].tolist() == pytest.approx([2.0, 0.0])
    assert {"word00", "word11", "GloVe"} <= set(texts(figure))
    assert planes([]) == {}


def test_a_map_of_one_sentence_has_its_weights():
    source, target = ["a", "dog", "costs", "$5$", "a"], ["ein", "Hund", "<end>"]
    shares = np.random.default_rng(0).dirichlet(np.ones(len(source)), len(target))
    specification = alignment_map(source, target, shares).to_dict()
    (text,) = (rows for rows in specification["datasets"].values() if isinstance(rows, str))
    (words,) = (param["value"] for param in specification["params"] if param["name"] == "words")
    squares = pd.read_csv(StringIO(text))
    assert squares["weight"].tolist() == pytest.approx(shares[shares >= FAINT].tolist(), rel=5e-3)
    assert {words[place] for place in squares["target"]} == {*target}


@pytest.mark.parametrize("noise", [-1e-14, 1e-14])
def test_the_last_digits_of_a_coordinate_do_not_change_an_svg(noise):
    svg = '<g transform="translate({},2.5)"><path d="M{},-7.1e-15h-{}" x2="12"/><text>0.12345</text></g>'
    expected = '<g transform="translate(22.567,2.5)"><path d="M0.000,0.000h-4.000" x2="12"/><text>0.12345</text></g>'
    assert rounded(svg.format(22.5666523 + noise, noise, 4 - 1e-15)) == expected
