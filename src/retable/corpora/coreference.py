"""Read and write documents with clusters of coreferent mentions, in CoNLL-2012's columns (Pradhan et al. 2012)."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.columns import Row, read_rows, require_columns
from retable.corpora.text import SPLITS

BEGIN = re.compile(r"#begin document \((.*)\);(?: part (\d{1,9}))?")
MENTION = re.compile(r"(\()?(\d+)(\))?")

Mention = tuple[int, int]  # indices in the document: the mention's first word, and the word after its last word


class Document(NamedTuple):
    """A document with its clusters of coreferent mentions."""

    name: str
    part: int
    sentences: list[list[str]]
    clusters: list[list[Mention]]  # mentions in text order; clusters in the order of their first mentions


def read_documents(path: Path, word: int = 3, clusters: int = -1) -> list[Document]:
    """Read the documents between `#begin document (name); part 000` and `#end document`.

    In the column of clusters, `(12` begins a mention of cluster 12. `12)` ends the last mention of cluster 12 that is
    still open. `(12)` is a mention of one word, and | separates several entries.

    Args:
        word, clusters: column numbers, counted from 0. Negative numbers count from the end: −1 is the last column.

    Raises: UsageError: the file is missing or has no documents, a line is malformed, or a mention does not end in the
        sentence where it begins.
    """
    documents: list[Document] = []
    current: _Reader | None = None
    row = Row(0, [])
    for row in read_rows(path):
        mark = row.fields[:2]
        if mark == ["#begin", "document"]:
            if current:
                raise UsageError(
                    f"{path}, line {row.line}: a document begins within another document; write #end document before it"
                )
            current = _Reader(path, row, word, clusters)
        elif mark == ["#end", "document"] and current:
            documents.append(current.end(row.line))
            current = None
        elif current and row.fields:
            current.read(row)
        elif current:
            current.end_sentence(row.line)
        elif row.fields:
            raise UsageError(
                f"{path}, line {row.line}: text outside a document; write before it #begin document (name); part 000"
            )
    if current:
        raise UsageError(f"{path}, line {row.line}: the last document does not end; write #end document after it")
    if not documents:
        raise UsageError(f"{path} has no documents; begin each document with #begin document (name); part 000")
    return documents


class DocumentFiles:
    """Coreference data from one file per split; the attribute `inputs` lists the three files.

    train, validation, test: files in CoNLL-2012's column format.
    """

    def __init__(self, train: str, validation: str, test: str):
        self.inputs = [Path(train), Path(validation), Path(test)]

    def splits(self) -> dict[str, list[Document]]:
        """Return the documents of the splits train, validation and test.

        Raises: UsageError: a file is missing or malformed, or a document has no words.
        """
        splits = dict(zip(SPLITS, map(read_documents, self.inputs), strict=True))
        for path, documents in zip(self.inputs, splits.values(), strict=True):
            for document in documents:
                if not document.sentences:
                    raise UsageError(f"{path}: {document.name}, part {document.part:03} has no words; remove the part")
        return splits


def write_documents(path: Path, documents: Iterable[Document]) -> None:
    """Write documents in the twelve tab-separated columns of CoNLL-2012, for the reference scorer.

    Columns without a known value contain hyphens. Two mentions of a cluster must not overlap partially.
    """
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(f"#begin document ({document.name}); part {document.part:03}\n")
            start, marks = 0, _marks(document.clusters)
            for words in document.sentences:
                for place, word in enumerate(words):
                    known = document.name, str(document.part), str(place), word
                    file.write("\t".join([*known, *["-"] * 7, marks.get(start + place, "-")]) + "\n")
                start += len(words)
                file.write("\n")
            file.write("#end document\n")


def _marks(clusters: Iterable[Iterable[Mention]]) -> dict[int, str]:
    """Return the entry of each word in the column of clusters.

    An entry lists first the mentions that end at the word, then mentions of only this word, then mentions that begin at
    the word.
    """
    closing, single, opening = (defaultdict[int, list[str]](list) for _ in range(3))
    for number, mentions in enumerate(clusters):
        for start, end in mentions:
            if end == start + 1:
                single[start].append(f"({number})")
            else:
                opening[start].append(f"({number}")
                closing[end - 1].append(f"{number})")
    return {place: "|".join(closing[place] + single[place] + opening[place]) for place in {*closing, *single, *opening}}


class _Reader:
    """The state of a document while the document's lines are read."""

    def __init__(self, path: Path, row: Row, word: int, clusters: int):
        begin = BEGIN.fullmatch(" ".join(row.fields))
        if begin is None:
            raise UsageError(f"{path}, line {row.line}: malformed; write #begin document (name); part 000")
        self._path, self._word, self._clusters = path, word, clusters
        self._name, self._part = begin[1], int(begin[2] or 0)
        self._sentences: list[list[str]] = [[]]
        self._n_words = 0
        self._open: dict[str, list[int]] = defaultdict(list)  # maps a cluster to first words of its open mentions
        self._mentions: dict[str, list[Mention]] = defaultdict(list)

    def read(self, row: Row) -> None:
        require_columns(self._path, row, word=self._word, clusters=self._clusters)
        field = row.fields[self._clusters]
        for part in field.split("|") if field not in ("-", "_") else []:
            mention = MENTION.fullmatch(part)
            opens, cluster, closes = mention.groups() if mention else (None, "", None)
            if not (opens or closes) or not (opens or self._open[cluster]):
                raise UsageError(
                    f"{self._path}, line {row.line}: {field!r} "
                    + (
                        f"ends a mention of cluster {cluster}, but no such mention has begun"
                        if closes
                        else "is malformed; write, for example, (12, 12) or (12)"
                    )
                )
            if opens:
                self._open[cluster].append(self._n_words)
            if closes:
                self._mentions[cluster].append((self._open[cluster].pop(), self._n_words + 1))
        self._sentences[-1].append(row.fields[self._word])
        self._n_words += 1

    def end_sentence(self, line: int) -> None:
        if unclosed := [cluster for cluster, starts in self._open.items() if starts]:
            raise UsageError(
                f"{self._path}, line {line}: the sentence ends within a mention of cluster {unclosed[0]}; "
                "end the mention in this sentence"
            )
        if self._sentences[-1]:
            self._sentences.append([])

    def end(self, line: int) -> Document:
        self.end_sentence(line)
        clusters = sorted(sorted(mentions) for mentions in self._mentions.values())
        return Document(self._name, self._part, self._sentences[:-1], clusters)
