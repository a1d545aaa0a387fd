"""The map of a sentence: words down that look at words across."""

from collections.abc import Sequence
from itertools import zip_longest

import altair as alt
import pandas as pd

from retable.reporting.figures import COLOURS, INK, Figure

CELL = 24  # pixels of a square's side
FAINT = 0.02  # a lesser weight is not drawn: nobody would see it
WORDS = 50  # letters of a sentence that tell which it is
PLACE = 4  # letters of a word's place before it


def heat_map(squares: pd.DataFrame, choices: Sequence[str], told: str, framed: str = "") -> Figure:
    """Of the sentence that is chosen the target's words down, in each row the fuller the square the larger the weight
    of the source's word above it. At first it is the first sentence.

    `squares` has a row a square: the columns `choices`, whose numbers are chosen among in menus, `sentence` the first
    of them; `target_place`, `target`, `source_place`, `source`; `weight` from 0 to 1; with `framed` a column of that
    name, 1 where a frame stands round the square.
    """
    places = {side: squares[f"{side}_place"].map(f"{{:0{PLACE - 1}d}} ".format) for side in ("target", "source")}
    # words behind their places: in their order along the axis, and the second of two equal ones stays one of its own
    squares = squares.assign(**{side: places[side] + squares[side] for side in places}).sort_values(
        [*choices, "target", "source"]
    )
    words, labels = [], {}
    for sentence, own in squares.groupby("sentence"):
        targets, sources = sorted(set(own["target"])), sorted(set(own["source"]))
        labels[sentence] = _label(sentence, targets)
        rows = zip_longest(targets, sources, fillvalue=None)
        words += [(sentence, target or targets[-1], source or sources[-1]) for target, source in rows]
    word = f"slice(datum.label, {PLACE})"
    across = alt.X("source:N", axis=alt.Axis(orient="top", labelAngle=-60, labelExpr=word))
    down = alt.Y("target:N", axis=alt.Axis(labelExpr=word))
    params = [_menu(choice, sorted(set(squares[choice])), labels if choice == "sentence" else {}) for choice in choices]
    is_chosen = " && ".join(f"datum.{choice} == {choice}" for choice in choices)
    columns = [*choices, "target", "source", "weight", *filter(None, [framed])]
    is_seen = squares["weight"] >= FAINT
    seen = squares[is_seen | (squares[framed] == 1) if framed else is_seen]
    # all words stand on the axes, whether they are looked at or not
    grid = alt.Chart(pd.DataFrame(words, columns=["sentence", "target", "source"]))
    grid = grid.transform_filter("datum.sentence == sentence").mark_rect(opacity=0).encode(across, down)
    base = alt.Chart(_csv(seen[columns])).transform_filter(is_chosen).encode(across, down)
    base = base.transform_calculate(**{"from": f"slice(datum.target, {PLACE})", "to": f"slice(datum.source, {PLACE})"})
    full = base.mark_rect(color=COLOURS[0]).encode(
        opacity=alt.Opacity("weight:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0, 1])),
        tooltip=["from:N", "to:N", alt.Tooltip("weight:Q", format=".3f")],
    )
    layers = [grid, full]
    if framed:
        frames = base.transform_filter(f"datum.{framed} == 1").mark_rect(filled=False, stroke=COLOURS[1], strokeWidth=2)
        layers.append(frames)
    title = alt.expr(" + ', ' + ".join(f"'{choice} ' + {choice}" for choice in choices))
    figure = alt.layer(*layers, view=alt.ViewConfig(stroke=INK, strokeOpacity=0.3)).add_params(*params)
    size = {"width": alt.Step(CELL), "height": alt.Step(CELL)}
    return figure.properties(title={"text": title, "subtitle": told}, **size)


def _menu(choice: str, numbers: Sequence[int], labels: dict[int, str]) -> alt.Parameter:
    shown = [labels.get(number, str(number)) for number in numbers]
    options = [int(number) for number in numbers]
    menu = alt.binding_select(options=options, labels=shown, name=f"{choice} ")
    return alt.param(name=choice, value=options[0], bind=menu)


def _label(sentence: int, words: Sequence[str]) -> str:
    text = " ".join(word[PLACE:] for word in words)
    return f"{sentence}: {text}" if len(text) <= WORDS else f"{sentence}: {text[:WORDS]}…"


def _csv(frame: pd.DataFrame) -> alt.InlineData:
    """The table in fewer bytes than a row's names take in JSON."""
    parse = {name: "string" if name in ("target", "source") else "number" for name in frame}
    text = frame.to_csv(index=False, lineterminator="\n", float_format="%.3g")
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=parse))
