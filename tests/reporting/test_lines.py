"""Test scales, names at the ends of lines, and panels of many systems."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from pipelines.config.project import CONF
from retable.planning.conf import Conf
from retable.reporting.figures import COLOURS, FAINT, LINE, SHADES, colours, family, family_colours
from retable.reporting.lines import POINTS, Look, Scale, apart, line_panel, round_ticks, stacked
from tests.reporting.charts import drawn as drawn_of
from tests.reporting.charts import line, marks, specified, table, tables, texts

X, Y = Scale("step", 0, 1000), Scale("loss", 0, 10)


def lines_of(systems, n=5, **more):
    steps = np.linspace(0, 1000, n)
    parts = [{"system": name, "variant": "", "x": steps, "y": 1 + i + steps / 1000} for i, name in enumerate(systems)]
    return pd.concat([pd.DataFrame(part | more) for part in parts])


def test_names_keep_their_distance_and_stay_near():
    places = apart([10, 100, 101, 250], 260, LINE)
    assert places[[0, 3]].tolist() == pytest.approx([10, 250])
    assert places[2] - places[1] == pytest.approx(LINE) and places[1:3].mean() == pytest.approx(100.5)
    crowded = apart([259, 260, 258], 260, LINE)
    assert crowded.max() <= 260 and crowded.argsort().tolist() == [2, 0, 1]
    assert np.diff(np.sort(crowded)).min() >= LINE - 1e-9


@pytest.mark.parametrize("is_log", [False, True])
def test_pixels_and_values_are_each_others_inverse(is_log):
    scale = Scale.over("", [2.0, 50.0, float("nan")], is_log=is_log)
    assert scale.low < 2 and scale.high > 50
    values = np.array([2.0, 10.0, 50.0])
    pixels = scale.pixels(values, 200)
    np.testing.assert_allclose(scale.values(pixels, 200), values)
    middle = (scale.low * scale.high) ** 0.5 if is_log else (scale.low + scale.high) / 2
    assert scale.pixels(middle, 200) == pytest.approx(100)


TICKS = {
    (6.6, 18.5): [8, 10, 12, 14, 16, 18],
    (90, 700): [100, 150, 200, 300, 500, 700],
    (9, 400): [10, 20, 30, 50, 100, 200, 300],
    (1e-4, 1e2): [1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100],
}


def test_ticks_of_logarithms_are_round_and_few():
    assert {ends: round_ticks(*ends) for ends in TICKS} == TICKS
    assert 2 <= len(round_ticks(1e-22, 1)) <= 7


def test_numbers_are_told_at_the_pointer_alone():
    figure = line_panel(lines_of(["lstm"], low=0.5, high=4.0), X, Y, {"": Look()}).to_dict()
    (nearest,) = figure["params"]
    assert nearest["select"]["nearest"] and nearest["select"]["on"] == "pointerover"
    (hover,) = [mark for mark in marks(figure, "point") if "tooltip" in mark["encoding"]]
    assert [each["field"] for each in hover["encoding"]["tooltip"]] == ["system", "variant", "x", "y", "low", "high"]
    opacity = hover["encoding"]["opacity"]
    assert opacity == {"condition": [{"param": nearest["name"], "empty": False, "value": 1}], "value": 0}
    frame = pd.DataFrame({"x": range(20), "y": range(20), "system": "one", "variant": ""})
    figure = line_panel(frame, Scale.over("x", frame["x"]), Scale.over("y", frame["y"]), {"": Look()})
    assert "nearest_point" in figure.to_json()  # the page uses this parameter
    assert 'opacity="0"' not in drawn_of(figure) and drawn_of(figure).count("<path") < 20


def test_more_systems_than_colours_have_a_panel_each_before_the_others():
    names = [f"system_{i}" for i in range(len(COLOURS) + 1)]
    figure = line_panel(lines_of(names), X, Y, {"": Look()}, bounds=[("bound", 0.5)])
    specification = specified(figure)
    assert specification["facet"]["field"] == "system"
    assert set(names) <= set(texts(figure)) and texts(figure).count("bound") == len(names)
    others = table(figure, "other")
    assert set(others["other"]) == set(names)
    behind, own = marks(specification, "line")
    assert behind["encoding"]["color"]["value"] == FAINT and behind["encoding"]["detail"]["field"] == "other"
    assert "data" not in own and set(own["encoding"]["color"]["scale"]["range"]) == {
        *family_colours(["system_0"]).values(),
        FAINT,
    }
    # each panel has the lines of all other systems and its own
    assert len(re.findall(f'stroke="{FAINT}"[^>]* opacity="0.25"', drawn_of(figure))) == len(names) ** 2
    assert not tables(figure, "place")
    assert "facet" not in line_panel(lines_of(names[:-1]), X, Y, {"": Look()}).to_dict()


def test_long_lines_are_thinned_to_their_ends():
    figure = line_panel(lines_of(["gpt"], n=5000), X, Y, {"": Look()})
    x, _ = line(figure, "gpt")
    assert len(x) == POINTS and (x[0], x[-1]) == (0, 1000) and max(np.diff(x)) < 6
    many = line_panel(lines_of([f"system_{i}" for i in range(20)], n=5000, low=0.1, high=0.2), X, Y, {"": Look()})
    assert len(json.dumps(many.to_dict())) < 200_000


def test_stacked_panels_of_many_systems_tell_numbers_where_the_pointer_is():
    lines = lines_of([f"system_{i}" for i in range(len(COLOURS) + 1)])
    figure = stacked([line_panel(lines, X, Y, {"": Look()}, name=name) for name in ("upper", "lower")])
    specification = specified(figure)
    hovered = {mark["name"]: mark for mark in marks(specification, "point") if "tooltip" in mark["encoding"]}
    watched = {param["name"]: param["views"] for param in specification["params"]}
    assert watched.keys() == {"nearest_upper", "nearest_lower"} and len(hovered) == 2
    for param, (view,) in watched.items():
        assert hovered[view]["encoding"]["opacity"]["condition"][0]["param"] == param
    assert drawn_of(figure).count("system_0") >= 2


def test_families_keep_their_colours_and_shades_tell_their_systems_apart():
    alone, all_of = colours(["kn5"]), colours(["gpt", "kn3", "kn5", "mine", "other_gpt"])
    assert all_of["kn3"] == alone["kn5"] and len({*all_of.values()}) == 5
    assert all_of["gpt"] in family_colours(["gpt_ptb"]).values() and all_of["mine"] not in family_colours(all_of)
    assert colours(["lstm", "gru", "elman", "rnn"][:SHADES]) and colours(["lstm", "gru", "elman", "rnn"]) is None


PACKAGES = {
    "n-grams": "ngram additive good_turing maximum_entropy sparse_nonnegative_matrix pruning cache interpolated",
    "feed-forward": "fixed_window log_bilinear gated_convolution bag_of_words convolutional_encoder lenet "
    "residual_convolutional_encoder window_tagger",
    "recurrent": "recurrent stacked_recurrent awd_lstm character_lstm elmo bilstm bilstm_attention tagger elmo_tagger "
    "elmo_features bidaf mention_ranker",
    "Transformer decoder": "gpt gpt_special_tokens transformer_xl",
    "Transformer encoder": "bert vit",
    "encoder–decoder": "t5 transformer_encoder_decoder rnn_encoder_decoder convolutional_encoder_decoder",
    "word vectors": "skipgram cbow glove fasttext",
}


def test_the_family_of_a_recipe_is_that_of_its_model():
    """The names from which a family is chosen agree with the classes of the models."""
    expected = {module: name for name, modules in PACKAGES.items() for module in modules.split()}
    wrong = {}
    conf = Conf(CONF)
    for file in CONF.glob("recipe/*/[!_]*.yaml"):
        model = conf.recipe(file.stem)["choices"].get("model")
        target = conf.read("model", model)["_target_"] if model else ""
        module = target.rpartition(".")[0].rpartition(".")[2]
        if family(file.stem) != expected.get(module, family(file.stem)):
            wrong[file.stem] = family(file.stem), module
    assert wrong == {}
