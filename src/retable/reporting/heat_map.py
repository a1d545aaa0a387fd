"""Heat maps of a sentence: the weights of each word (a row) on other words (columns)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from retable.reporting.figures import COLOURS, INK, Figure, titled

CELL = 24  # Side of a square, in pixels.
FAINT = 0.02  # Weights below this value are not drawn, because they would be invisible.
LETTERS = 50  # Maximum number of characters of a sentence in the menu.


def heat_map(squares: pd.DataFrame, choices: Sequence[str], title: str, *subtitle: str, framed: str = "") -> Figure:
    """Draw the sentence chosen in menus: a row per target word, a column per source word.

    Args:
        squares: a row per square with the columns in `choices`, `target_place`, `target`, `source_place`, `source`, and
            `weight` from 0 to 1, which determines the shade.
        choices: columns with a menu, in which users choose a number; the first column is `sentence`.
        title, subtitle: texts of the figure; the chosen numbers follow the title.
        framed: name of a column that is 1 for squares with a frame.
    """
    words: list[str] = []  # words of all sentences; squares refer to words by number, which saves bytes
    for side in ("target", "source"):
        of_side = ["sentence", f"{side}_place"]
        words_of_side = squares[[*of_side, side]].drop_duplicates(of_side).sort_values(of_side)
        numbers = pd.Series(
            range(len(words), len(words) + len(words_of_side)), pd.MultiIndex.from_frame(words_of_side[of_side])
        )
        words += words_of_side[side].tolist()
        squares = squares.assign(**{side: numbers.loc[pd.MultiIndex.from_frame(squares[of_side])].to_numpy()})
    squares = squares.sort_values([*choices, "target", "source"])
    sentences = {
        int(number): f"{number}: {' '.join(words[word] for word in dict.fromkeys(own['target']))}"
        for number, own in squares.groupby("sentence")
    }
    labels = {"sentence": [text if len(text) <= LETTERS else f"{text[:LETTERS]}…" for text in sentences.values()]}
    params = [_menu(choice, sorted(set(squares[choice])), labels) for choice in choices]

    word = "words[datum.value]"
    across = alt.X("source:O", axis=alt.Axis(orient="top", labelAngle=-60, labelExpr=word))
    down = alt.Y("target:O", axis=alt.Axis(labelExpr=word))
    # An invisible grid keeps all words on the axes, even words whose weights are not drawn.
    of_words = pd.concat([squares.drop_duplicates(["sentence", side]) for side in ("target", "source")])
    grid = alt.Chart(of_words[["sentence", "target", "source"]].drop_duplicates())
    grid = grid.transform_filter("datum.sentence == sentence").mark_rect(opacity=0).encode(across, down)
    is_seen = squares["weight"] >= FAINT
    seen = squares[is_seen | (squares[framed] == 1) if framed else is_seen]
    base = alt.Chart(_csv(seen[[*choices, "target", "source", "weight", *filter(None, [framed])]]))
    base = base.transform_filter(" && ".join(f"datum.{choice} == {choice}" for choice in choices))
    base = base.transform_calculate(**{"from": "words[datum.target]", "to": "words[datum.source]"})
    fill = alt.Color("weight:Q", legend=None)
    full = base.mark_rect().encode(
        across, down, fill.scale(domain=[0, 1], range=["#ffffff", COLOURS[0]], interpolate="rgb"),
        tooltip=["from:N", "to:N", alt.Tooltip("weight:Q", format=".3f")],
    )  # fmt: skip
    layers = [grid, full]
    if framed:
        frames = base.transform_filter(f"datum.{framed} == 1").encode(across, down)
        layers.append(frames.mark_rect(filled=False, stroke=COLOURS[1], strokeWidth=2))
    figure = alt.layer(*layers, view=alt.ViewConfig(stroke=INK, strokeOpacity=0.3))
    figure = figure.add_params(*params, alt.param(name="words", value=words))
    size = {"width": alt.Step(CELL), "height": alt.Step(CELL)}
    heading: Any = titled(figure.properties(**size), title, *subtitle).title
    chosen = " + ', ' + ".join(f"'{choice} ' + {choice}" for choice in choices)
    lines = ", ".join([*(json.dumps(line, ensure_ascii=False) for line in heading["text"]), chosen])
    return figure.properties(title=heading | {"text": alt.expr(f"[{lines}]")}, **size)


def _menu(choice: str, numbers: Sequence[int], labels: Mapping[str, list[str]]) -> alt.Parameter:
    options = [int(number) for number in numbers]
    menu = alt.binding_select(options=options, labels=labels.get(choice, [str(n) for n in options]), name=f"{choice} ")
    return alt.param(name=choice, value=options[0], bind=menu)


def _csv(frame: pd.DataFrame) -> alt.InlineData:
    """Convert a table to CSV; JSON would be larger, as it repeats column names in each row."""
    text = frame.to_csv(index=False, lineterminator="\n", float_format="%.3g")
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=dict.fromkeys(frame, "number")))
