"""Documents with clusters of coreferent mentions, in the columns of CoNLL-2012 (Pradhan et al. 2012)."""

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

Mention = tuple[int, int]  # its first word, and the one behind its last, counted from the document's first


class Document(NamedTuple):
    name: str
    part: int
    sentences: list[list[str]]
    clusters: list[list[Mention]]  # each in the order of the text, as are the clusters by their first mentions


def read_documents(path: Path, word: int = 3, clusters: int = -1) -> list[Document]:
    """The documents between #begin document (name); part 000 and #end document.

    word, clusters: columns, counted from 0, or back from the last, −1. In that of clusters (12 opens a mention of
    cluster 12, 12) closes the one opened last, (12) is one of a single word, and | parts several. UsageError for a
    missing file, one without documents, or a line that does not fit; a mention has to end in its sentence.
    """
    documents: list[Document] = []
    current: _Reader | None = None
    row = Row(0, [])
    for row in read_rows(path):
        mark = row.fields[:2]
        if mark == ["#begin", "document"]:
            if current:
                raise UsageError(f"{path}, line {row.line}: a document begins where #end document is due")
            current = _Reader(path, row, word, clusters)
        elif mark == ["#end", "document"] and current:
            documents.append(current.end(row.line))
            current = None
        elif current and row.fields:
            current.read(row)
        elif current:
            current.end_sentence(row.line)
        elif row.fields:
            raise UsageError(f"{path}, line {row.line}: #begin document (name); part 000 is due")
    if current:
        raise UsageError(f"{path}, line {row.line}: the file ends where #end document is due")
    if not documents:
        raise UsageError(f"{path} holds no documents; each begins with #begin document (name); part 000")
    return documents


class DocumentFiles:
    """A file a split; `inputs` are the three."""

    def __init__(self, train: str, validation: str, test: str):
        self.inputs = [Path(train), Path(validation), Path(test)]

    def splits(self) -> dict[str, list[Document]]:
        """The documents of train, validation and test. UsageError for a file that is missing or can't be read, or has a
        document without words."""
        splits = dict(zip(SPLITS, map(read_documents, self.inputs), strict=True))
        for path, documents in zip(self.inputs, splits.values(), strict=True):
            for document in documents:
                if not document.sentences:
                    raise UsageError(f"{path}: {document.name}, part {document.part:03} has no words; take it out")
        return splits


def write_documents(path: Path, documents: Iterable[Document]) -> None:
    """The documents in CoNLL-2012's twelve columns, with tabs, as the reference scorer reads them; what is not known of
    a word is a hyphen. Two mentions of a cluster must not cross."""
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
    """What stands in the column of clusters, by word: mentions that end there, are there, and begin there."""
    closing, alone, opening = (defaultdict[int, list[str]](list) for _ in range(3))
    for number, mentions in enumerate(clusters):
        for start, end in mentions:
            if end == start + 1:
                alone[start].append(f"({number})")
            else:
                opening[start].append(f"({number}")
                closing[end - 1].append(f"{number})")
    return {place: "|".join(closing[place] + alone[place] + opening[place]) for place in {*closing, *alone, *opening}}


class _Reader:
    """A document as far as it is read."""

    def __init__(self, path: Path, row: Row, word: int, clusters: int):
        begin = BEGIN.fullmatch(" ".join(row.fields))
        if begin is None:
            raise UsageError(f"{path}, line {row.line}: write #begin document (name); part 000")
        self._path, self._word, self._clusters = path, word, clusters
        self._name, self._part = begin[1], int(begin[2] or 0)
        self._sentences: list[list[str]] = [[]]
        self._n_words = 0
        self._open: dict[str, list[int]] = defaultdict(list)  # the first words of open mentions, by their cluster
        self._found: dict[str, list[Mention]] = defaultdict(list)

    def read(self, row: Row) -> None:
        require_columns(self._path, row, word=self._word, clusters=self._clusters)
        field = row.fields[self._clusters]
        for part in field.split("|") if field not in ("-", "_") else []:
            mention = MENTION.fullmatch(part)
            opens, cluster, closes = mention.groups() if mention else (None, "", None)
            if not (opens or closes) or not (opens or self._open[cluster]):
                raise UsageError(
                    f"{self._path}, line {row.line}: {field!r} "
                    + (f"closes a mention of {cluster} that is not open" if closes else "is no mention: (12, 12), (12)")
                )
            if opens:
                self._open[cluster].append(self._n_words)
            if closes:
                self._found[cluster].append((self._open[cluster].pop(), self._n_words + 1))
        self._sentences[-1].append(row.fields[self._word])
        self._n_words += 1

    def end_sentence(self, line: int) -> None:
        if unclosed := [cluster for cluster, starts in self._open.items() if starts]:
            raise UsageError(f"{self._path}, line {line}: the sentence ends in a mention of {unclosed[0]}")
        if self._sentences[-1]:
            self._sentences.append([])

    def end(self, line: int) -> Document:
        self.end_sentence(line)
        clusters = sorted(sorted(mentions) for mentions in self._found.values())
        return Document(self._name, self._part, self._sentences[:-1], clusters)
