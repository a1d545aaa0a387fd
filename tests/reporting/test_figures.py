import re
import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from retable.reporting.figures import inline_svg, learning_curves, perplexities, planes, size_curves, write_figure
from retable.reporting.results import aggregate, read_references, read_result


@pytest.fixture
def results(write_likelihood, write_curve, perplexity_of):
    folders = []
    for seed in (1, 2):
        for name, value in (("lstm", 70), ("gpt", 71)):
            folder = write_likelihood("evaluate", f"grammar/{name}-{seed}", name, seed, [perplexity_of(value)] * 4)
            write_curve(folder, [6.0, 5.0, 4.0 + seed / 10][: 4 - seed])
            folders.append(folder)
    folders.append(write_likelihood("prepare", "grammar", "oracle", 0, [perplexity_of(45)] * 4))
    return [read_result(folder) for folder in folders]


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_curves_are_labelled_means_over_common_steps(results):
    (figure,) = learning_curves(results).values()
    (axes,) = figure.axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [
        [0, 100],
        [0, 100],
    ]  # step 200: one seed alone
    assert [line.get_ydata().tolist() for line in axes.lines] == [[6.0, 5.0], [6.0, 5.0]]
    labels = [text for text in axes.texts]
    assert [label.get_text() for label in labels] == ["gpt", "lstm"]
    offsets = sorted(label.get_position()[1] for label in labels)
    assert offsets[1] - offsets[0] > 10  # points: the two ends coincide, their names must not


def test_training_loss_stands_in_and_no_curve_is_no_figure(results, write_run):
    folder = write_run("embed", "grammar/skipgram-1", "skipgram", 1, {})
    assert learning_curves([read_result(folder)]) == {}
    table = pd.DataFrame({"step": [0, 1], "metric": "train/loss", "value": [3.0, 2.0]})
    table.to_csv(folder / "curve.csv", index=False)
    figures = learning_curves([*results, read_result(folder)])
    assert list(figures) == ["embed · grammar", "evaluate · grammar"]
    assert figures["embed · grammar"].axes[0].get_ylabel() == "train loss (nats)"


def test_perplexities_show_every_system_and_the_oracle(results):
    (figure,) = perplexities(aggregate(results, read_references())).values()
    shown = texts(inline_svg(figure, "Perplexity"))
    assert {"gpt", "lstm", "71.0", "70.0", "oracle 45.0"} <= set(shown)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_files_have_the_same_bytes_each_time(results, tmp_path, suffix):
    for name in ("first", "second"):
        (figure,) = learning_curves(results).values()
        write_figure(figure, tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"second.{suffix}").read_bytes()


def test_inline_svg_fits_any_page(results):
    frame = aggregate(results, read_references())
    svg = inline_svg(perplexities(frame)["grammar"], 'a "title"')
    assert svg.startswith("<svg") and "currentColor" in svg
    assert ElementTree.fromstring(svg).get("aria-label") == 'a "title"'
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', svg)) <= set(ids)


def test_analogies_grow_with_the_corpus(write_vectors):
    accuracies = {"grammar": [50, 60], "grammar_3m": [70, 74], "grammar_tiny": [1, 2], "ptb": [5, 6]}
    cells = [(corpus, "skipgram", seed, accuracies[corpus][seed - 1]) for corpus in accuracies for seed in (1, 2)]
    cells += [("grammar", "glove", 1, 30)]
    frame = aggregate([read_result(write_vectors(*cell)) for cell in cells], read_references())
    words = {"grammar": 1.03e6, "grammar_3m": 3e6, "grammar_tiny": 5e4, "ptb": 9e5}
    figures = size_curves(frame, words)
    assert list(figures) == ["regular-grammar", "total-grammar"]
    (axes,) = figures["total-grammar"].axes
    curves = {line.get_color(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines}
    glove, skipgram = curves.values()
    assert skipgram == (pytest.approx([1.03e6, 3e6]), pytest.approx([55, 72]))
    assert glove == (pytest.approx([1.03e6]), pytest.approx([30]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1.03 million", "3 million"]
    assert {text.get_text() for text in axes.texts} == {"glove", "skipgram"}
    assert size_curves(frame, {"grammar": 1e6}) == {} == size_curves(frame, {})


def test_planes_join_their_pairs(write_plane):
    places = [((1.0, 2.0), (-1.0, 2.0)), ((1.1, 2.0), (-1.2, 0.0))]
    folders = [
        write_plane("grammar/glove-1", "glove", 1, places),
        write_plane("grammar/skipgram-2", "skipgram", 2, [((9.0, 9.0), (8.0, 8.0))]),
        write_plane("grammar/skipgram-1", "skipgram", 1, places[:1]),
    ]
    (figure,) = planes(read_result(folder) for folder in folders).values()
    glove, skipgram = figure.axes
    assert (glove.get_title("left"), skipgram.get_title("left")) == ("glove", "skipgram")
    joined = [line for line in glove.lines if line.get_linestyle() == ":"]
    assert [line.get_xydata().tolist() for line in joined] == [[list(point) for point in pair] for pair in places]
    assert [text.get_text() for text in skipgram.texts] == ["word00", "word01"]  # of the first seed
    heights = {text.get_text(): text.get_position()[1] for text in glove.texts}
    assert abs(heights["word00"] - heights["word10"]) > 5  # points: the dots nearly coincide, their names must not
    assert planes([]) == {}


def test_a_fine_tuned_recipe_may_keep_settings_of_its_objective(write_run, write_curve):
    folder = write_run("train", "grammar/bert-1", "bert", 1, {"cola/test/matthews": 0.5})
    (folder / "config.yaml").write_text("tokens: grammar/word\nobjective: {next_sentence: false}\n", encoding="utf-8")
    write_curve(folder, [2.0, 1.0])
    assert set(learning_curves([read_result(folder)])) == {"train · grammar"}
