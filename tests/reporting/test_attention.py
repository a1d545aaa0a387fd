"""The maps and the table of heads, from result folders as the evaluate stage leaves them."""

import numpy as np
import pandas as pd
import pytest
import vl_convert

from retable.evaluation.attention_maps import MAP_COLUMNS, SHARES
from retable.reporting.attention import attention_figures, heads_tables
from retable.reporting.figures import COLOURS
from retable.reporting.heat_map import FAINT
from retable.reporting.results import read_result
from tests.reporting import charts
from tests.reporting.charts import marks, squares_of
from tests.reporting.specifications import heads

WORDS = ["[CLS]", "NA", "$runs$", "[SEP]"]
MAPS = np.random.default_rng(0).dirichlet(np.ones(4) / 3, (2, 2, 4))
FLOORS = {"equal": 0.25, "offset": 0.5}


@pytest.fixture
def write(write_run):
    """A cell of two layers of two heads, whose shares are 0.3 but for one that always finds the subject."""

    def build(corpus, system, seed, n_sentences=2):
        metrics = {f"attention/{name}": 100.0 for name in ("words", "verbs", "far_verbs")}
        for share in SHARES:
            kind = "offset" if share.endswith("first") else "equal"
            metrics[f"attention/{kind}/{share}"] = FLOORS[kind]
        folder = write_run("evaluate", f"{corpus}/{system}-{seed}-attention", system, seed, metrics)
        squares = [
            (sentence, layer + 1, head + 1, target, WORDS[target], source, WORDS[source], weight)
            for sentence in range(1, n_sentences + 1)
            for (layer, head, target, source), weight in np.ndenumerate(MAPS)
        ]
        table = pd.DataFrame(squares, columns=MAP_COLUMNS[:-1])
        is_subject = (table["target_place"] == 2) & (table["source_place"] == 1)
        table.assign(subject=is_subject.astype(int)).to_csv(folder / "attention.csv", index=False)
        heads = [
            (layer, head, share, 1.0 if (layer, head) == (2, 1) and "subject" in share else 0.3, 0.04)
            for layer in (1, 2)
            for head in (1, 2)
            for share in SHARES
        ]
        columns = ["layer", "head", "share", "mean", "error"]
        pd.DataFrame(heads, columns=columns).to_csv(folder / "heads.csv", index=False)
        return folder

    return build


def n_drawn(weights):
    return sum(weight >= FAINT or place == (2, 1) for place, weight in np.ndenumerate(weights))


def test_a_sentence_a_layer_and_a_head_are_chosen(write):
    figures = attention_figures([read_result(write("grammar", "bert", 1))])
    assert [*figures] == ["grammar-bert-1"]
    specification = figures["grammar-bert-1"].to_dict()
    menus = {param["name"]: param["bind"]["options"] for param in specification["params"] if "bind" in param}
    assert menus == {"sentence": [1, 2], "layer": [1, 2], "head": [1, 2]}
    drawn, framed = marks(specification, "rect")[1:]
    chosen = {"filter": "datum.sentence == sentence && datum.layer == layer && datum.head == head"}
    assert drawn["transform"][0] == framed["transform"][0] == chosen
    squares = squares_of(specification)
    frames = squares[squares["subject"] == 1]
    assert set(zip(frames["target_word"], frames["source_word"], strict=True)) == {("$runs$", "NA")}
    shown = squares[(squares["weight"] >= FAINT) & (squares["sentence"] == 2)].set_index(["layer", "head"])
    for (layer, head), weights in (((k, h), MAPS[k - 1, h - 1]) for k in (1, 2) for h in (1, 2)):
        own = shown.loc[layer, head]
        places = own[["target_word", "source_word"]].map(WORDS.index)
        np.testing.assert_array_equal(places, np.argwhere(weights >= FAINT))
        np.testing.assert_allclose(own["weight"], weights[weights >= FAINT], rtol=5e-3)
    assert len(squares) < MAPS.size * 2  # what nobody would see is left out
    svg = vl_convert.vegalite_to_svg(charts.chosen(figures["grammar-bert-1"], sentence=2, layer=2, head=1))
    assert "sentence 2, layer 2, head 1" in charts.texts_of(svg)
    assert svg.count(f'fill="{COLOURS[0]}"') == n_drawn(MAPS[1, 0])


def test_a_row_a_head_and_what_no_head_is_needed_for(write):
    results = [read_result(write("grammar", system, seed)) for system, seed in (("gpt", 1), ("bert", 2), ("bert", 1))]
    ((table, frame),) = heads_tables(results)
    rows = table.panels["grammar"]
    assert [[value.text for value in row.values[:4]] for row in rows[:6]] == [
        *(["bert", "1", str(layer), str(head)] for layer in (1, 2) for head in (1, 2)),
        ["bert", "1", "equal attention", ""],
        ["bert", "1", "the usual distance", ""],
    ]
    assert [row.values[0].text + row.values[1].text for row in rows[::6]] == ["bert1", "bert2", "gpt1"]
    assert [row.apart for row in rows] == [False] * 6 + ([True] + [False] * 5) * 2
    titles = heads(table)
    assert titles[4:6] == ["To the word itself", "To the word before"] and len(titles) == 4 + len(SHARES)
    subject, first = titles.index("Verb to its subject attention"), titles.index("Verb to its subject most")
    found = rows[2].values  # layer 2, head 1
    assert (found[subject].text, found[subject].spread, found[subject].bold) == ("100.0", "4.0", True)
    other = rows[0].values  # 0.3 is more than 0.25, but not by two errors
    assert (other[subject].text, other[subject].bold, other[first].bold) == ("30.0", False, False)
    assert rows[4].values[subject].text == "25.0" and rows[4].values[first].text == ""
    assert rows[5].values[subject].text == "" and rows[5].values[first].text == "50.0"
    assert len(frame) == 3 * 4 * len(SHARES) and set(frame["verbs"]) == {100} and heads_tables([]) == []
    assert attention_figures([read_result(write("grammar", "bert", 3, n_sentences=0))]) == {} == attention_figures([])
