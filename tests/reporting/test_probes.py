"""Test the table and the figure of probes, made from result folders in the format of stage evaluate."""

import pytest

from retable.reporting.probes import probes_figures, probes_table
from retable.reporting.results import aggregate, read_result
from tests.reporting.charts import ends, line, marks, specified, texts
from tests.reporting.specifications import REFERENCES
from tests.reporting.specifications import texts as cells

KINDS = ("number", "part_of_speech")


@pytest.fixture
def write_probes(write_run):
    def write(corpus, system, layers, kinds=KINDS):
        metrics = {}
        for kind in kinds:
            metrics |= {f"probes/majority/{kind}": 0.625, f"probes/words/{kind}": 480}
            for k, accuracy in enumerate(layers):
                metrics |= {f"probes/layer_{k}/{kind}": accuracy, f"probes/layer_{k}/{kind}_control": accuracy - 0.25}
        return write_run("evaluate", f"{corpus}/{system}-1-probes", system, 1, metrics)

    return write


def frame_of(*folders):
    frame = aggregate(map(read_result, folders), REFERENCES)
    return frame[frame["task"] == "probes"]


def test_a_row_a_system_and_layer(write_probes):
    folders = write_probes("grammar", "gpt", [0.5, 0.75]), write_probes("grammar", "elmo", [0.625])
    table = probes_table(frame_of(*folders))
    titles = [(column.group, column.title) for column in table.columns]
    assert titles[3:6] == [("number", "accuracy"), ("number", "control"), ("number", "selectivity")]
    assert cells(table, "grammar") == [
        ["elmo", "0", "1", *["62.5", "37.5", "25.0"] * 2],
        ["gpt", "0", "1", *["50.0", "25.0", "25.0"] * 2],
        ["gpt", "1", "1", *["75.0", "50.0", "25.0"] * 2],
        ["most frequent label", "", "", *["62.5", "", ""] * 2],
    ]


def test_a_corpus_may_lack_a_kind_of_label(write_probes):
    senses = write_probes("grammar_senses", "elmo", [0.5, 0.75], kinds=("number", "part_of_speech", "sense"))
    frame = frame_of(senses, write_probes("grammar", "elmo", [0.625]))
    assert cells(probes_table(frame), "grammar")[0][-3:] == ["", "", ""]
    panels = {corpus: len(figure.concat) for corpus, figure in probes_figures(frame).items()}
    assert panels == {"grammar": 2, "grammar_senses": 3}


def test_the_figure_has_the_accuracies_by_layer(write_probes):
    folders = write_probes("grammar", "gpt", [0.5, 0.75]), write_probes("grammar", "elmo", [0.7], KINDS[1:])
    (figure,) = probes_figures(frame_of(*folders)).values()
    number, part_of_speech = figure.concat
    assert line(number, "gpt", "probe") == ([0, 1], [50.0, 75.0])
    assert line(number, "gpt", "control") == ([0, 1], [25.0, 50.0])
    assert ends(number) == {"gpt": 75.0, "Most frequent label": 62.5}
    assert line(part_of_speech, "elmo", "control") == ([0], [45.0])
    drawn = marks(specified(figure), "line")
    assert [mark["encoding"]["y"]["axis"]["title"] for mark in drawn] == ["number, %", "part of speech, %"]
    colours = [mark["encoding"]["color"]["scale"] for mark in drawn]  # colours are the same in all panels
    assert colours[0] == colours[1] and colours[0]["domain"] == ["elmo", "gpt", "Most frequent label"]
    assert drawn[0]["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [2, 3]]
    assert {"GPT", "ELMo", "Most frequent label", "number, %"} <= set(texts(figure))
