"""Figures of Transformers' attention in single sentences, and a table of all attention heads.

Equal data give byte-identical figures.
"""

from collections.abc import Iterable

import pandas as pd

from retable.reporting.fields import filled_table, system_value
from retable.reporting.figures import Figure
from retable.reporting.heat_map import heat_map
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.names import display_name
from retable.reporting.results import Result

ERRORS = 2  # A share is bold if it exceeds the share of trivial attention by more than this many standard errors.
SHARES = {  # For each value of the column `share` in `heads.csv`: heading and title of its column in the table.
    "itself": ("To the word", "itself"),
    "previous": ("To the word", "before"),
    "next": ("To the word", "after"),
    "marks": ("To", "marks"),
    "subject": ("Verb to its subject", "attention"),
    "subject_first": ("Verb to its subject", "most"),
    "far_subject": ("Verb to its subject, not directly before it", "attention"),
    "far_subject_first": ("Verb to its subject, not directly before it", "most"),
}
# trivial attention: name in the metrics, label in the table
FLOORS = {"equal": "equal attention", "offset": "the usual distance"}


def attention_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """Return a figure per trained model: the words attended to, for a chosen sentence, layer and head.

    A square has a frame if its row is a verb and its column is the subject of this verb.
    """
    subtitle = "from words at the left to words above; darker: more; framed: from a verb to its subject"
    return {
        "{corpus}-{system}-{seed}".format_map(result.run): heat_map(
            result.tables["attention"],
            ["sentence", "layer", "head"],
            f"Attention of {display_name(result.run['system'])}, seed {result.run['seed']}",
            subtitle,
            framed="subject",
        )
        for result in sorted(results, key=lambda result: result.name)
        if len(result.tables.get("attention", ()))
    }


def heads_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return the table of attention heads with its rows, or an empty list if no heads were measured.

    There is a row per system, seed, layer and head. After the heads of each seed, there are rows with the scores of two
    trivial patterns of attention (FLOORS).
    """
    panels: dict[str, list[Row]] = {}
    frames = []
    measured = [result for result in results if "heads" in result.tables]
    for result in sorted(measured, key=lambda result: (result.run["corpus"], result.run["system"], result.run["seed"])):
        own, rows = result.tables["heads"], panels.setdefault(result.run["corpus"], [])
        name = [system_value(result.run["system"]), Value(str(result.run["seed"]))]
        floors = {kind: {share: result.metrics.get(f"attention/{kind}/{share}") for share in SHARES} for kind in FLOORS}
        is_first = True
        for (layer, head), part in own.groupby(["layer", "head"]):
            cells = part.set_index("share")
            values = [_share(cells.loc[share], share, floors, result.name) for share in SHARES]
            rows.append(Row([*name, Value(str(layer)), Value(str(head)), *values], apart=is_first and bool(rows)))
            is_first = False
        for kind, title in FLOORS.items():
            texts = ["" if share is None else f"{100 * share:.1f}" for share in floors[kind].values()]
            rows.append(Row([*name, Value(title), Value(""), *map(Value, texts)]))
        run = {name: result.run[name] for name in ("corpus", "system", "seed")}
        counts = {name: int(result.metrics[f"attention/{name}"]) for name in ("words", "verbs", "far_verbs")}
        frames.append(own.assign(**run, **counts, runs=result.name))
    if not frames:
        return []
    columns = [Column("System", numeric=False), Column("Seed"), Column("Layer", numeric=False), Column("Head")]
    columns += [Column(title, group) for group, title in SHARES.values()]
    notes = [
        "Attention in new, unmasked sentences of the language, in percent (Clark et al. 2019). The first columns: "
        "attention from a word to itself, to its neighbours, and to the marks around the sentence. Verb to its "
        "subject: attention from a verb to the head of its subject. Most: the share of verbs whose subject gets the "
        "most attention of all other words. Not directly before it: only verbs whose subject's head is not the word "
        "before them.",
        "Equal attention is uniform over all visible positions. The usual distance is the share of subjects at the "
        "most frequent distance from their verb.",
        f"± is the standard error over sentences. Bold: above trivial attention by more than {ERRORS} standard "
        "errors, not corrected for the number of comparisons.",
    ]
    table = filled_table("attention-heads", "Attention heads by target", columns, panels, notes)
    return [(table, pd.concat(frames))]


def _share(cell: pd.Series, share: str, floors: dict[str, dict[str, float | None]], run: str) -> Value:
    if "subject" not in share:
        return Value(f"{100 * cell['mean']:.1f}", runs=(run,))
    (floor,) = (shares[share] for shares in floors.values() if shares[share] is not None)
    is_more = cell["mean"] - ERRORS * cell["error"] > floor
    return Value(f"{100 * cell['mean']:.1f}", f"{100 * cell['error']:.1f}", bold=bool(is_more), runs=(run,))
