"""Tables of words' nearest neighbours, as the cells found them."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import zip_longest

import numpy as np
import pandas as pd

from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

WORDS, NEIGHBOURS = 6, 5  # so many unseen words of those that were looked at, so many neighbours of each


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
                Row([Value(str(place), runs=(result.name,)), *map(Value, line)])
                for place, line in enumerate(zip_longest(*lists, fillvalue=""), start=1)
            ]
            frames.append(result.neighbours.assign(system=system, corpus=corpus, runs=result.name))
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


def unseen_neighbours_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """A table a corpus, with its rows as they were found: at the heads some of the words that the text lacks, below
    them their neighbours, a panel a system. Of several seeds the first is shown."""
    found: dict[str, dict[str, Result]] = defaultdict(dict)
    for result in sorted(results, key=lambda result: (result.run["seed"] or 0, result.name)):
        if result.unseen_words is not None:
            found[result.run["corpus"]].setdefault(result.run["system"], result)
    tables = []
    for corpus, systems in sorted(found.items()):
        frames = {
            system: result.unseen_words.assign(system=system, corpus=corpus, runs=result.name)
            for system, result in sorted(systems.items())
            if result.unseen_words is not None
        }
        every = pd.concat(frames.values())
        heads = every.drop_duplicates("word")[["word", "stem", "form"]]
        shown = heads.iloc[np.unique(np.linspace(0, len(heads) - 1, WORDS).round().astype(int))]
        panels = {}
        for system, frame in frames.items():
            lists = [frame.loc[frame["word"] == word, "neighbour"][:NEIGHBOURS] for word in shown["word"]]
            panels[system] = [
                Row([Value(str(place), runs=(systems[system].name,)), *map(Value, line)])
                for place, line in enumerate(zip_longest(*lists, fillvalue=""), start=1)
            ]
        titles = (f"{form} of {stem}" if stem else "" for stem, form in zip(shown["stem"], shown["form"], strict=True))
        columns = [Column(""), *(Column(*pair, numeric=False) for pair in zip(titles, shown["word"], strict=True))]
        notes = [
            f"{len(shown)} of the {len(heads)} words that were looked at, none of which the training text has; below "
            "each its neighbours among the text's words by cosine at the layer without context, the nearest first. Of "
            "several seeds the first is shown."
        ]
        name, title = f"unseen-neighbours-{corpus}", f"Nearest neighbours of unseen words, {corpus}"
        tables.append((Table(name, title, columns, panels, notes, panel="System"), every))
    return tables
