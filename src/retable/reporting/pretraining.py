"""Tables and figures of pretrained models: metrics of objectives, word senses by layer."""

from collections import defaultdict
from collections.abc import Mapping

import pandas as pd

from retable.reporting.fields import SPREAD, filled_table, mean_value, runs_value, span, system_value
from retable.reporting.figures import Figure, titled
from retable.reporting.lines import DOTTED, Look, Scale, line_panel
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import BOUNDS

# Columns of the table, by group and title: the metrics that a column may show, and a factor for its numbers. A column
# shows the first of its metrics that a system has.
HELD_OUT: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {
    ("Masked words", "nats"): (("masked_loss", "generator_loss"), 1),
    ("Masked words", "accuracy"): (("masked_accuracy",), 100),
    ("Pairs of segments", "nats"): (("next_sentence_loss",), 1),
    ("Pairs of segments", "accuracy"): (("next_sentence_accuracy",), 100),
    ("Replaced words", "nats"): (("discriminator_loss",), 1),
    ("Replaced words", "accuracy"): (("replaced_accuracy",), 100),
    ("Replaced words", "recall"): (("replaced_recall",), 100),
    ("Replaced words", "share"): (("replaced",), 100),
    ("Targets", "nats"): (("target_loss",), 1),
    ("Targets", "accuracy"): (("accuracy",), 100),
}
# Rows about the built-in grammar, by label. A row maps a metric of HELD_OUT to the (task, metric) that is shown in its
# column.
GRAMMAR = {
    "bound (grammar)": {"masked_loss": ("masked", "corrupted")},
    "bound, one word corrupted (grammar)": {"masked_loss": ("masked", "alone_corrupted")},
    "one word masked (grammar)": {"masked_loss": ("masked", "alone"), "masked_accuracy": ("masked", "accuracy")},
    "reference classifier of next sentences (grammar)": {"next_sentence_accuracy": ("next_sentence", "accuracy")},
    "reference classifier of sentence order (grammar)": {"next_sentence_accuracy": ("sentence_order", "accuracy")},
    "reference classifier of replaced words (grammar)": {"replaced_accuracy": ("replaced", "accuracy")},
    "bound, given the masked positions (grammar)": {"replaced_accuracy": ("replaced", "accuracy_told")},
    "always predicts 'not replaced'": {"replaced_accuracy": ("replaced", "baseline")},
    "bound, random spans (grammar)": {"target_loss": ("spans", "loss")},
    "random spans, estimate from above (grammar)": {"target_loss": ("spans", "loss_above")},
    "bound, text after a prefix (grammar)": {"target_loss": ("prefix", "loss")},
}


def held_out_table(frame: pd.DataFrame) -> Table:
    """Return the table of held-out metrics: a row per system, followed by the rows of GRAMMAR.

    Systems are grouped by objective, and sorted from the worst to the best loss.
    """
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column(title, group) for group, title in HELD_OUT]
    panels = {}
    for corpus, part in frame.groupby("corpus"):
        rows = []
        for system, own in part[part["task"] == "held_out"].groupby("system"):
            cells = _by_kind_of_loss({cell["metric"]: cell for _, cell in own.iterrows()})
            places = [i for i, (metrics, _) in enumerate(HELD_OUT.values()) if any(name in cells for name in metrics)]
            losses = (cells[name]["mean"] for metrics, _ in HELD_OUT.values() for name in metrics if name in cells)
            order = places, -next(losses, 0.0)
            rows.append((order, Row([system_value(str(system)), runs_value(own["n"]), *_held_out_values(cells)])))
        systems = [row for _, row in sorted(rows, key=lambda item: item[0])]
        panels[str(corpus)] = [*systems, *_grammar_rows(part[part["task"].isin(BOUNDS)])]
    notes = [
        "Metrics of each objective on the test split, corrupted as in training. Nats are per predicted token. "
        "Accuracies and shares are in percent. Nats are comparable only between systems with the same objective and "
        "tokenizer.",
        "For ELECTRA, masked words are predicted by the generator. Replaced words: accuracy over all tokens, recall of "
        "replaced tokens, and their share.",
        SPREAD,
    ]
    if frame["task"].isin(BOUNDS).any():
        notes.append(
            "Grammar: the best possible scores on this language, ± the standard error. They are for whole words; nats "
            "of models with smaller tokens are not comparable. "
            "Bound of masked words: no model's expected loss under BERT's corruption is lower. It is estimated from "
            "below. "
            "One word corrupted: the loss if all other words are visible. It is at most the bound. "
            "One word masked: the loss and accuracy of the best guess if all other words are visible. "
            "Reference classifiers know the grammar. Their accuracy on pairs is close to the best possible one. The "
            "classifier of replaced words also knows the generator. "
            "Given the masked positions, no detector of replaced words has a higher expected accuracy. "
            "Bounds of targets, for T5's random spans and for a prefix LM: no model's expected loss is lower. That of "
            "random spans is estimated from below. "
            "The estimate from above is not a bound; its distance to the other estimate shows their error."
        )
    return filled_table("held_out", "Held-out metrics of objectives", columns, panels, notes)


def _held_out_values(cells: Mapping[str, pd.Series]) -> list[Value]:
    matches = (next((cells[name] for name in metrics if name in cells), None) for metrics, _ in HELD_OUT.values())
    scales = (scale for _, scale in HELD_OUT.values())
    return [mean_value(cell, 3 if scale == 1 else 1, scale) for cell, scale in zip(matches, scales, strict=True)]


def _grammar_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of GRAMMAR that were computed, each number with its standard error."""
    cells = {(cell["task"], cell["metric"]): cell for _, cell in frame.iterrows()}
    rows: list[Row] = []
    for label, bounded in GRAMMAR.items():
        bounds = {}
        for name, (task, metric) in bounded.items():
            if (task, metric) in cells:
                bounds[name] = cells[task, metric].copy()
                bounds[name]["std"] = cells[task, f"{metric}_standard_error"]["mean"]
        if bounds:
            rows.append(Row([Value(label), Value(""), *_held_out_values(bounds)], apart=not rows))
    return rows


def _by_kind_of_loss(cells: dict[str, pd.Series]) -> dict[str, pd.Series]:
    """Rename `loss` to `masked_loss` or `target_loss`; drop losses that are sums."""
    loss = cells.pop("loss", None)
    if loss is None or "generator_loss" in cells:
        return cells
    if "masked_accuracy" in cells:
        return cells | {"masked_loss": loss}
    return cells | {"target_loss": loss} if "accuracy" in cells else cells


def senses_table(frame: pd.DataFrame) -> Table:
    """Return the table of word-sense accuracy: a row per system and layer, from layer 0 (no context).

    The last row is the accuracy of the most frequent sense.
    """
    columns = [Column("System", numeric=False), Column("Layer"), Column("Runs"), Column("Occurrences")]
    columns += [Column("nearest", "Accuracy by the"), Column("centroid", "Accuracy by the")]
    panels: dict[str, list[Row]] = {}
    for corpus, part in frame.groupby("corpus"):
        rows = panels.setdefault(str(corpus), [])
        occurrences = part[part["metric"] == "occurrences"].set_index("system")["mean"]
        for system, own in part.groupby("system"):
            for i, (layer, cells) in enumerate(layers_of(own)):
                head = [system_value(str(system)), Value(str(layer)), runs_value(own["n"])]
                head.append(Value(span(occurrences[[system]] if system in occurrences else occurrences[:0])))
                values = [mean_value(cells.get(way), 1, 100) for way in ("nearest", "centroid")]
                rows.append(Row([*head, *values], apart=i == 0 and bool(rows)))
        majority = sorted(set(part.loc[part["metric"] == "majority", "mean"].round(6)))
        for share in majority:  # a single row if all systems were tested on the same occurrences
            values = [Value("most frequent sense"), *[Value("")] * 3, *[Value(f"{100 * share:.1f}")] * 2]
            rows.append(Row(values, apart=share == majority[0]))
    notes = [
        "Accuracy (%) of predicting a word's sense from the nearest other occurrence of the word, or from the nearest "
        "mean of a sense's other occurrences. Layer 0 has no context: all occurrences of a word are equally near and "
        "share one prediction. That prediction is right less often than the most frequent sense.",
        SPREAD,
    ]
    return filled_table("senses", "Senses of words by layer", columns, panels, notes)


def senses_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus of word-sense accuracy by layer.

    Each system has a solid line for prediction by the nearest occurrence of the word, and a dotted line for prediction
    by the nearest mean of a sense. The dashed line is the accuracy of the most frequent sense.
    """
    senses = frame[frame["task"] == "senses"]
    return {str(corpus): _senses_figure(str(corpus), part) for corpus, part in senses.groupby("corpus")}


def _senses_figure(corpus: str, frame: pd.DataFrame) -> Figure:
    ways = {"nearest": Look(is_marked=True), "centroid": Look(DOTTED, is_marked=True, shape="square")}
    rows = [
        (system, way, layer, 100 * cells[way]["mean"])
        for system, own in frame.groupby("system")
        for layer, cells in layers_of(own)
        for way in ways
        if way in cells
    ]
    lines = pd.DataFrame(rows, columns=["system", "variant", "x", "y"]).sort_values(["variant", "x"], kind="stable")
    shares = sorted(set(frame.loc[frame["metric"] == "majority", "mean"].round(6)))
    bounds = [("Most frequent sense", 100 * share) for share in shares]
    y = Scale.over("accuracy, %", lines["y"], [value for _, value in bounds])
    subtitle = "circles: by the nearest occurrence; squares, dotted: by the nearest mean"
    figure = line_panel(lines, layers_scale("layer (0: without context)", lines["x"]), y, ways, bounds=bounds)
    return titled(figure, "Senses of ambiguous words by layer", f"corpus {corpus}", subtitle)


def layers_scale(title: str, layers: pd.Series) -> Scale:
    return Scale(title, -0.1, max(layers) + 0.1, ticks=range(max(layers) + 1), format="d")


def layers_of(system: pd.DataFrame) -> list[tuple[int, dict[str, pd.Series]]]:
    """Return the layers of a system in ascending order, each with its rows by metric."""
    layers: dict[int, dict[str, pd.Series]] = defaultdict(dict)
    for _, cell in system[system["split"].str.startswith("layer_")].iterrows():
        layers[int(cell["split"].removeprefix("layer_"))][cell["metric"]] = cell
    return sorted(layers.items())
