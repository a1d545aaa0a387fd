"""Read CoNLL-U, the format of Universal Dependencies (https://universaldependencies.org/format.html)."""

import re
from pathlib import Path

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.text import read_lines, require_length

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NO_WORD = re.compile(r"[0-9]+(-|\.)[0-9]+")  # ids that are not words: 3-4 is a multiword token, 8.1 an empty node


def read_conllu(path: Path, tag: str = "upos") -> list[TaggedSentence]:
    """Read each sentence's syntactic words, with the values of the column `tag` as their tags.

    Lines of multiword tokens (id 3-4) and of empty nodes (id 8.1) are skipped. Only tabs separate columns, because
    word forms may contain spaces.

    Raises: UsageError: the file is missing or has no sentences, `tag` is not a column, or a line is malformed.
    """
    if tag not in COLUMNS:
        raise UsageError(f"CoNLL-U has no column {tag!r}; write one of {', '.join(COLUMNS)}")
    sentences, sentence = [], TaggedSentence([], [])
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            if sentence.words:
                sentences.append(sentence)
                sentence = TaggedSentence([], [])
        elif not line.startswith("#"):
            fields = line.split("\t")
            if len(fields) != len(COLUMNS):
                raise UsageError(f"{path}, line {number}: expects ten columns separated by tabs, but got {len(fields)}")
            if NO_WORD.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(sentence.words) + 1):
                raise UsageError(
                    f"{path}, line {number}: expects word number {len(sentence.words) + 1} but got {fields[0]!r}; "
                    "number words 1, 2, 3, …, and write a blank line after each sentence"
                )
            require_length(f"{path}, line {number}", len(sentence.words) + 1)
            sentence.words.append(fields[1])
            sentence.tags.append(fields[COLUMNS.index(tag)])
    if sentence.words:
        sentences.append(sentence)
    if not sentences:
        raise UsageError(f"{path} has no sentences; write the file in CoNLL-U format, one word per line")
    return sentences
