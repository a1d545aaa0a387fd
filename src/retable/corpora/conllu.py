"""Sentences in CoNLL-U, the format of Universal Dependencies (https://universaldependencies.org/format.html)."""

import re
from pathlib import Path

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.text import read_lines, require_length

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NO_WORD = re.compile(r"[0-9]+(-|\.)[0-9]+")  # 3-4: a token of two words, which follow it; 8.1: a word that was left out


def read_conllu(path: Path, tag: str = "upos") -> list[TaggedSentence]:
    """The syntactic words of each sentence with one of their annotations.

    Lines of multiword tokens (3-4) and of empty nodes (8.1) hold no words, and are left out. Columns are parted by tabs
    alone: forms may hold spaces. UsageError for a missing file, one without sentences, a column that the format lacks,
    a line without ten columns, or words that are not numbered 1, 2, 3, ….
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
                raise UsageError(f"{path}, line {number}: {len(fields)} columns where CoNLL-U has ten, parted by tabs")
            if NO_WORD.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(sentence.words) + 1):
                raise UsageError(
                    f"{path}, line {number}: word {fields[0]!r} where {len(sentence.words) + 1} is due; words are "
                    "numbered 1, 2, 3, …, and a blank line stands behind each sentence"
                )
            require_length(f"{path}, line {number}", len(sentence.words) + 1)
            sentence.words.append(fields[1])
            sentence.tags.append(fields[COLUMNS.index(tag)])
    if sentence.words:
        sentences.append(sentence)
    if not sentences:
        raise UsageError(f"{path} holds no sentences in CoNLL-U")
    return sentences
