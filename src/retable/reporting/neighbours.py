"""Tables of the nearest neighbours of words, by their vectors."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
import pandas as pd

from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.names import display_name
from retable.reporting.results import Result, by_corpus

WORDS, NEIGHBOURS = 6, 5  # A table shows WORDS unseen words, each with NEIGHBOURS neighbours.
Lists = Mapping[str, Sequence[pd.Series]]  # Lists of the neighbours of each word, by system.


def neighbours_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return tables of words' nearest neighbours, one per corpus, with their rows.

    The header of a table has the words and their frequency ranks, and each system has a panel. If a system has several
    seeds, only the first is shown. Systems whose words or ranks differ have separate tables.
    """
    tables = []
    note = (
        "Below each word: its frequency rank, then its nearest neighbours by cosine, nearest first. "
        "Only the first seed is shown."
    )
    for corpus, systems in by_corpus(results, "neighbours"):
        asked: dict[tuple[tuple[str, str], ...], dict[str, Result]] = defaultdict(dict)  # by words and ranks
        for system, runs in systems.items():
            for run in runs:
                heads = run.tables["neighbours"][["word", "rank"]].drop_duplicates()
                asked[tuple(heads.itertuples(index=False, name=None))].setdefault(system, run)
        for number, (words, firsts) in enumerate(sorted(asked.items()), start=1):
            frames = _frames("neighbours", corpus, firsts)
            lists = {
                system: [part["neighbour"] for _, part in frame.groupby("word", sort=False)]
                for system, frame in frames.items()
            }
            name = f"neighbours-{corpus}" + f"-{number}" * (number > 1)
            table = _table(name, f"Nearest neighbours, {corpus}", words, lists, firsts, note)
            tables.append((table, pd.concat(frames.values())))
    return tables


def unseen_neighbours_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return tables of the neighbours of words outside the training text, one per corpus, with their rows.

    A table shows WORDS unseen words, with a panel per system. If a system has several seeds, only the first is shown.
    """
    tables = []
    for corpus, systems in by_corpus(results, "unseen_words"):
        firsts = {system: runs[0] for system, runs in systems.items()}
        frames = _frames("unseen_words", corpus, firsts)
        every = pd.concat(frames.values())
        heads = every.drop_duplicates("word")[["word", "stem", "form"]]
        shown = heads.iloc[np.unique(np.linspace(0, len(heads) - 1, WORDS).round().astype(int))]
        lists = {
            system: [frame.loc[frame["word"] == word, "neighbour"][:NEIGHBOURS] for word in shown["word"]]
            for system, frame in frames.items()
        }
        words = [(row.word, f"{row.form} of {row.stem}" if row.stem else "") for row in shown.itertuples()]
        note = (
            f"{len(shown)} of the {len(heads)} tested words; none of the tested words is in the training text. Below "
            "each word: its nearest neighbours among the words of the training text, nearest first, by the cosine in "
            "the layer without context. Only the first seed is shown."
        )
        title = f"Nearest neighbours of unseen words, {corpus}"
        tables.append((_table(f"unseen-neighbours-{corpus}", title, words, lists, firsts, note), every))
    return tables


def _frames(kind: str, corpus: str, firsts: Mapping[str, Result]) -> dict[str, pd.DataFrame]:
    return {
        system: result.tables[kind].assign(system=system, corpus=corpus, runs=result.name)
        for system, result in firsts.items()
    }


def _table(
    name: str, title: str, words: Iterable[tuple[str, str]], lists: Lists, firsts: Mapping[str, Result], note: str
) -> Table:
    """Return a table with a panel per system and a column per word.

    In the header, each word has a second text below it, such as its frequency rank.
    """
    panels = {
        display_name(system): [
            Row([Value(str(place), runs=(firsts[system].name,)), *map(Value, line)])
            for place, line in enumerate(zip_longest(*columns, fillvalue=""), start=1)
        ]
        for system, columns in lists.items()
    }
    columns = [Column("neighbour"), *(Column(below, word, numeric=False) for word, below in words)]
    return Table(name, title, columns, panels, [note], panel="System")
