"""The map of a sentence: words down that look at words across."""

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from retable.reporting.figures import COLOURS, INK, Figure

CELL = 24  # pixels of a square's side
FAINT = 0.02  # a lesser weight is not drawn: nobody would see it
LETTERS = 50  # of a sentence that tell which it is


def heat_map(squares: pd.DataFrame, choices: Sequence[str], told: str, framed: str = "") -> Figure:
    """Of the sentence that is chosen the target's words down, in each row the fuller the square the larger the weight
    of the source's word above it. At first it is the first sentence.

    `squares` has a row a square: the columns `choices`, whose numbers are chosen among in menus, `sentence` the first
    of them; `target_place`, `target`, `source_place`, `source`; `weight` from 0 to 1; with `framed` a column of that
    name, 1 where a frame stands round the square.
    """
    words: list[str] = []  # of all sentences; a square has their numbers, which are few bytes
    for side in ("target", "source"):
        of_side = ["sentence", f"{side}_place"]
        found = squares[[*of_side, side]].drop_duplicates(of_side).sort_values(of_side)
        numbers = pd.Series(range(len(words), len(words) + len(found)), pd.MultiIndex.from_frame(found[of_side]))
        words += found[side].tolist()
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
    # all words stand on the axes, whether they are looked at or not
    of_words = pd.concat([squares.drop_duplicates(["sentence", side]) for side in ("target", "source")])
    grid = alt.Chart(of_words[["sentence", "target", "source"]].drop_duplicates())
    grid = grid.transform_filter("datum.sentence == sentence").mark_rect(opacity=0).encode(across, down)
    is_seen = squares["weight"] >= FAINT
    seen = squares[is_seen | (squares[framed] == 1) if framed else is_seen]
    base = alt.Chart(_csv(seen[[*choices, "target", "source", "weight", *filter(None, [framed])]]))
    base = base.transform_filter(" && ".join(f"datum.{choice} == {choice}" for choice in choices))
    base = base.transform_calculate(**{"from": "words[datum.target]", "to": "words[datum.source]"})
    full = base.mark_rect(color=COLOURS[0]).encode(
        across, down, alt.Opacity("weight:Q", legend=None).scale(domain=[0, 1], range=[0, 1]),
        tooltip=["from:N", "to:N", alt.Tooltip("weight:Q", format=".3f")],
    )  # fmt: skip
    layers = [grid, full]
    if framed:
        frames = base.transform_filter(f"datum.{framed} == 1").encode(across, down)
        layers.append(frames.mark_rect(filled=False, stroke=COLOURS[1], strokeWidth=2))
    title = alt.expr(" + ', ' + ".join(f"'{choice} ' + {choice}" for choice in choices))
    figure = alt.layer(*layers, view=alt.ViewConfig(stroke=INK, strokeOpacity=0.3))
    figure = figure.add_params(*params, alt.param(name="words", value=words))
    size = {"width": alt.Step(CELL), "height": alt.Step(CELL)}
    return figure.properties(title={"text": title, "subtitle": told}, **size)


def _menu(choice: str, numbers: Sequence[int], labels: Mapping[str, list[str]]) -> alt.Parameter:
    options = [int(number) for number in numbers]
    menu = alt.binding_select(options=options, labels=labels.get(choice, [str(n) for n in options]), name=f"{choice} ")
    return alt.param(name=choice, value=options[0], bind=menu)


def _csv(frame: pd.DataFrame) -> alt.InlineData:
    """The table in fewer bytes than its columns' names take in each row of JSON."""
    text = frame.to_csv(index=False, lineterminator="\n", float_format="%.3g")
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=dict.fromkeys(frame, "number")))
