"""The results tables as papers print them, built from the aggregates of `results.py`."""

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from retable.reporting.answers import answers_table
from retable.reporting.choices import choices_table
from retable.reporting.coreference import coreference_table
from retable.reporting.fields import (
    BOLD,
    SPREAD,
    filled_table,
    interval_value,
    mean_value,
    published_values,
    runs_value,
    span,
    system_label,
    system_panels,
)
from retable.reporting.glue import is_glue
from retable.reporting.markup import Column, Row, Table, Value, html_page, html_table, latex_table, markdown_table
from retable.reporting.pretraining import directions_table, held_out_table, senses_table, unseen_words_table
from retable.reporting.probes import probes_table
from retable.reporting.results import BOUNDS, DIRECTIONS, ORACLE, Result
from retable.reporting.tagging import tagging_table

TOTALS = ("regular", "semantic", "syntactic", "total")  # of sections of analogies


def perplexity_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best test perplexity per word, the oracle last; published systems that were
    not run stand among them by their published numbers."""

    def judged(split: str) -> list[Column]:
        return [Column("published", split), Column("verdict", split, numeric=False)]

    columns = [Column("System", numeric=False), Column("Context", numeric=False), Column("Runs")]
    columns += [Column("PPL/word", "Validation"), *judged("Validation")]
    columns += [Column("bits/byte", "Validation"), *judged("Validation")]
    columns += [Column(title, "Test") for title in ("PPL/token", "PPL/word", "95 % interval")]
    columns += [*judged("Test"), Column("bits/byte", "Test"), *judged("Test")]
    columns += [Column("FLOPs"), Column("Note", numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        validation, test = (
            {cell["metric"]: cell for _, cell in system[system["split"] == split].iterrows()}
            for split in ("validation", "test")
        )
        validation_word, word = validation.get("perplexity_word"), test.get("perplexity_word")
        # bits a byte are judged only where it is them that were published
        validation_bits, bits = (
            cell if cell is not None and not np.isnan(cell["published"]) else None
            for cell in (validation.get("bits_per_byte"), test.get("bits_per_byte"))
        )
        flops = system["flops"].max()
        notes = (cell["note"] for cell in (word, bits, validation_word, validation_bits) if cell is not None)
        return [
            Value(system_label(name, "true distribution")),
            Value(max(system["protocol"])),
            runs_value(system),
            mean_value(validation_word, 2),
            *published_values(validation_word, 2),
            mean_value(validation_bits, 4),
            *published_values(validation_bits, 4),
            mean_value(test.get("perplexity_token"), 2, bold=False),
            mean_value(word, 2),
            interval_value(word, 1),
            *published_values(word, 2),
            mean_value(test.get("bits_per_byte"), 4),
            *published_values(bits, 4),
            Value("" if np.isnan(flops) else f"{flops:.1e}".replace("e+", "e")),
            Value(next(filter(None, notes), "")),
        ]

    def badness(system: pd.DataFrame) -> float:
        shown = system.assign(mean=system["mean"].fillna(system["published"])).set_index(["metric", "split"])["mean"]
        for split in ("test", "validation"):
            if ("perplexity_word", split) in shown:
                return shown["perplexity_word", split]
            if ("bits_per_byte", split) in shown:
                return 2 ** (shown["bits_per_byte", split] * bytes_a_word[system["corpus"].iloc[0]])
        return np.inf

    notes = [
        "PPL/word and bits/byte compare systems with different tokenizers, PPL/token does not. "
        "The interval, of PPL/word, is a bootstrap over the units of the split: documents, or lines.",
        "A verdict is pass or fail where a tolerance is known, ± behind the published number. Not run: a published row "
        "that this study doesn't run. FLOPs: of training, six for each weight that a token is multiplied with; of rows "
        "that were not run those of the published training, where its settings are known.",
        SPREAD,
        BOLD,
    ]
    frame = frame[frame["split"].isin(["validation", "test"])]
    metrics = ["perplexity_word", "bits_per_byte"]
    means = frame.pivot(index=["corpus", "split", "system"], columns="metric", values="mean").reindex(columns=metrics)
    bytes_a_word = (np.log2(means["perplexity_word"]) / means["bits_per_byte"]).groupby("corpus").median()
    return filled_table("perplexity", "Perplexity", columns, system_panels(frame, row, badness), notes)


def tasks_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best mean, the Bayes-optimal prediction last: on test, of tasks whose test
    labels aren't known on validation."""
    titles = {"accuracy": "accuracy", "matthews": "Matthews", "f1": "F1", "pearson": "Pearson", "spearman": "Spearman"}
    frame = frame[frame["metric"].isin(titles)]
    tested = frame["task"].isin(frame.loc[frame["split"] == "test", "task"])
    frame = frame[frame["split"] == np.where(tested, "test", "validation")]
    untested = sorted(set(frame["task"][frame["split"] == "validation"]))
    keys = sorted(set(zip(frame["task"], frame["metric"], strict=True)))
    columns = [Column("System", numeric=False), Column("Runs")]
    for task, metric in keys:
        columns += [Column(titles[metric], task), Column("95 % interval", task)]
        columns += [Column("published", task), Column("verdict", task, numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        values = [Value(system_label(name, "Bayes-optimal")), runs_value(system)]
        cells = {(cell["task"], cell["metric"]): cell for _, cell in system.iterrows()}
        for cell in map(cells.get, keys):
            values += [mean_value(cell, 1, 100), interval_value(cell, 1, 100), *published_values(cell, 1, 100)]
        return values

    notes = [
        "Test splits; all metrics times 100. The interval is a bootstrap over the test examples.",
        *[f"Without labels of a test split, and so on validation: {', '.join(untested)}."] * bool(untested),
        SPREAD,
        BOLD,
    ]
    panels = system_panels(frame, row, badness=lambda system: -system["mean"].mean())
    return filled_table("tasks", "Tasks", columns, panels, notes)


def analogies_table(frame: pd.DataFrame) -> Table:
    """A row a section, the total last, by either method; a column a system, beside it what was published of it."""
    systems = sorted(frame["system"].unique())
    columns = [Column("Section", numeric=False), Column("Questions")]
    for system in systems:
        if frame.loc[frame["system"] == system, "published"].notna().any():
            columns += [Column("accuracy", system), Column("published", system)]
            columns += [Column("verdict", system, numeric=False)]
        else:
            columns += [Column(system), Column(""), Column("", numeric=False)]

    def row(label: str, part: pd.DataFrame, metric: str, apart: bool) -> Row:
        cells = {cell["system"]: cell for _, cell in part[part["metric"] == metric].iterrows()}
        values = [Value(label), _seen(part)]
        for cell in map(cells.get, systems):
            values += [mean_value(cell, 1, 100), *published_values(cell, 1, 100)]
        return Row(values, apart)

    panels = {}
    for corpus, of_corpus in frame.groupby("corpus"):
        sections = sorted(of_corpus.groupby("split"), key=lambda item: item[0] == "total")
        panels[corpus] = [row(section, part, "accuracy", section == "total") for section, part in sections]
        by_mul = set(of_corpus.loc[of_corpus["metric"] == "accuracy_mul", "split"])
        totals = [(section, part) for section, part in sections if section in by_mul.intersection(TOTALS)]
        panels[corpus] += [
            row(f"{section}, by 3CosMul", part, "accuracy_mul", apart=i == 0)
            for i, (section, part) in enumerate(totals)
        ]
    notes = [
        "Accuracy in percent by 3CosAdd, over the questions whose four words are all in the vocabulary.",
        SPREAD,
    ]
    if "regular" in set(frame["split"]):
        notes.append("Regular: the questions on inflection and derivation that all take the same ending.")
    return filled_table("analogies", "Word analogies", columns, panels, notes)


def similarity_table(frame: pd.DataFrame) -> Table:
    """A row a set of pairs: Spearman's correlation, a column a system, and the pairs that systems of a kind cover."""
    systems, protocols = sorted(frame["system"].unique()), sorted(frame["protocol"].unique())
    columns = [Column("Set", numeric=False), Column("Pairs")]
    columns += map(Column, systems)
    columns += [Column(protocol, "Pairs covered") for protocol in protocols]

    def row(name: str, part: pd.DataFrame) -> Row:
        pairs, covered, correlation = (part[part["metric"] == metric] for metric in ("pairs", "covered", "spearman"))
        cells = {cell["system"]: cell for _, cell in correlation.iterrows()}
        counts = [Value(span(covered.loc[covered["protocol"] == protocol, "mean"])) for protocol in protocols]
        means = [mean_value(cells.get(system), 1, 100) for system in systems]
        return Row([Value(name), Value(span(pairs["mean"])), *means, *counts])

    panels = {
        corpus: [row(*part) for part in of_corpus.groupby("split")] for corpus, of_corpus in frame.groupby("corpus")
    }
    notes = [
        "Spearman's rank correlation, times 100, of the cosines with people's judgement, over the pairs whose words "
        "both have vectors.",
        SPREAD,
    ]
    return filled_table("similarity", "Word similarity", columns, panels, notes)


def tokenizers_table(frame: pd.DataFrame) -> Table:
    """A row a tokenizer, from the largest vocabulary to the smallest."""
    columns = [Column("Tokenizer", numeric=False), Column("Vocabulary")]
    columns += [Column(title, "Test") for title in ("tokens/word", "bytes/token", "unknown, %")]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["split"], cell["metric"]): cell for _, cell in system.iterrows()}
        return [
            Value(name),
            mean_value(cells.get(("", "vocab_size")), 0),
            mean_value(cells.get(("test", "fertility")), 3),
            mean_value(cells.get(("test", "compression")), 3),
            mean_value(cells.get(("test", "unknown")), 2, 100),
        ]

    def size(system: pd.DataFrame) -> float:
        return system.loc[system["metric"] == "vocab_size", "mean"].sum()

    notes = ["Tokens a word are the fertility, bytes a token the compression; a line's end counts as a word."]
    return filled_table("tokenizers", "Tokenizers", columns, system_panels(frame, row, badness=size), notes)


def neighbours_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """A table a corpus, with its rows as they were found: at the heads the words with their frequency ranks, below
    them their neighbours, a panel a system. Of several seeds the first is shown. Systems that were asked for other
    words, or rank them otherwise, have a table of their own."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Result]] = {}
    for result in sorted(results, key=lambda result: (result.run["seed"] or 0, result.name)):
        if result.neighbours is not None:
            heads = result.neighbours[["word", "rank"]].drop_duplicates().itertuples(index=False, name=None)
            found.setdefault((result.run["corpus"], tuple(heads)), {}).setdefault(result.run["system"], result)
    tables: list[tuple[Table, pd.DataFrame]] = []
    names: Counter[str] = Counter()
    for (corpus, words), systems in sorted(found.items(), key=lambda item: item[0]):
        panels, frames = {}, []
        for system, result in sorted(systems.items()):
            assert result.neighbours is not None
            lists = [part["neighbour"] for _, part in result.neighbours.groupby("word", sort=False)]
            panels[system] = [
                Row([Value(str(place), runs=(result.id,)), *map(Value, line)])
                for place, line in enumerate(zip_longest(*lists, fillvalue=""), start=1)
            ]
            frames.append(result.neighbours.assign(system=system, corpus=corpus, runs=result.id))
        names[corpus] += 1
        table = Table(
            f"neighbours-{corpus}" + f"-{names[corpus]}" * (names[corpus] > 1),
            f"Nearest neighbours, {corpus}",
            [Column(""), *(Column(rank, word, numeric=False) for word, rank in words)],
            panels,
            [
                "Below a word stands its frequency rank, and then its neighbours by cosine, the nearest first. "
                "Of several seeds the first is shown."
            ],
            panel="System",
        )
        tables.append((table, pd.concat(frames)))
    return tables


def _seen(part: pd.DataFrame) -> Value:
    """The questions that were seen, and of how many, where that is more."""
    seen, asked = (part.loc[part["metric"] == metric, "mean"] for metric in ("seen", "questions"))
    text = span(seen)
    return Value(text if asked.empty or span(asked) == text else f"{text} of {span(asked)}")


def write_tables(frame: pd.DataFrame, folder: Path) -> list[Table]:
    """Write `<table>.{csv,md,tex,html}` of each table that has rows; the same frame gives the same bytes.

    A corpus on which a table has an oracle and no system to measure by it is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = frame["task"].map(_table_of).mask(is_glue(frame["task"]) & (frame["split"] == "validation"), "glue")
    of_text = (frame["system"] == ORACLE) & (names == "perplexity")
    tables = []
    for name, build in TABLES.items():
        part = frame[(names == name) | of_text if name == "directions" else names == name]
        measured = part[part["system"] != ORACLE]
        part = part[part["corpus"].isin(measured["corpus"])]
        if not part.empty:
            tables.append(write_table(build(part), part, folder))
    return tables


def write_table(table: Table, frame: pd.DataFrame, folder: Path) -> Table:
    """Write `<table>.{csv,md,tex,html}` into an existing folder, the CSV from `frame`."""
    # six digits: beyond them shows the order of summation, which is the machine's
    frame.to_csv(folder / f"{table.name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    (folder / f"{table.name}.md").write_text(markdown_table(table), encoding="utf-8")
    (folder / f"{table.name}.tex").write_text(latex_table(table), encoding="utf-8")
    page = html_page(table.title, html_table(table, "report.html"))
    (folder / f"{table.name}.html").write_text(page, encoding="utf-8")
    return table


def _table_of(task: str) -> str:
    if task in BOUNDS:
        return "held_out"
    if task in DIRECTIONS:
        return "directions"
    if task.startswith(("translation", "blimp", "prompted_")):
        return "other"  # which `translation_tables` and `without_training_tables` make
    named = {"": "perplexity", "tokenizer": "tokenizers"}.get(task, task)
    return named if named in TABLES else "tasks"


TABLES = {
    "perplexity": perplexity_table,
    "directions": directions_table,
    "held_out": held_out_table,
    "tasks": tasks_table,
    "tagging": tagging_table,
    "answers": answers_table,
    "choices": choices_table,
    "coreference": coreference_table,
    "probes": probes_table,
    "senses": senses_table,
    "unseen_words": unseen_words_table,
    "analogies": analogies_table,
    "similarity": similarity_table,
    "tokenizers": tokenizers_table,
}
