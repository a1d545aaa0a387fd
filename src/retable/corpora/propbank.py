"""Semantic roles in columns: a column of bracketed arguments for each predicate of a sentence, as in CoNLL-2005
(Carreras and Màrquez 2005) and CoNLL-2012 (Pradhan et al. 2012), after PropBank (Palmer, Gildea and Kingsbury 2005)."""

import re
from collections.abc import Sequence
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt
from retable.corpora.columns import Row, TaggedSentence, read_sentences, require_columns

BRACKETS = re.compile(r"(?:\(([^()*]+))?\*(\))?")
MARKS = ("#begin", "#end")  # of documents, in CoNLL-2012


def read_propositions(
    path: Path, word: NonNegativeInt, first: NonNegativeInt, behind: NonNegativeInt = 0
) -> list[TaggedSentence]:
    """The sentences once for each of their predicates, with its arguments as tags in IOB2. The predicate's own are of
    type V, and its first word is its place.

    word: the column of the words, counted from 0, or back from the last, −1.
    first: the first column of arguments; there is one for each of a sentence's predicates, in their order, and none
        where a sentence has none.
    behind: how many columns stand behind those of arguments.

    CoNLL-2012 has word=3, first=11, behind=1; CoNLL-2005's words and props, pasted side by side, word=0, first=2. In
    each column one span of type V is the predicate. UsageError for a missing file, one without predicates, or a
    sentence whose columns or brackets do not fit.
    """
    propositions = []
    for rows in read_sentences(path):
        rows = [row for row in rows if not (row.fields[0] in MARKS and row.fields[1:2] == ["document"])]
        if not rows:
            continue
        require_columns(path, rows[0], word=word)
        width = len(rows[0].fields)
        for row in rows:
            if len(row.fields) != width:
                raise UsageError(
                    f"{path}, line {row.line}: {len(row.fields)} columns where the sentence's first line has {width}"
                )
        words = [row.fields[word] for row in rows]
        for column in range(first, width - behind):
            tags = _tags(path, rows, column)
            predicates = [place for place, tag in enumerate(tags) if tag == "B-V"]
            if len(predicates) != 1:
                raise UsageError(
                    f"{path}, line {rows[0].line}: column {column} of the sentence marks {len(predicates)} predicates; "
                    "it has to have one (V*)"
                )
            propositions.append(TaggedSentence(words, tags, predicates[0]))
    if not propositions:
        raise UsageError(
            f"{path} marks no predicates; first={first} and behind={behind} have to name the columns of arguments"
        )
    return propositions


def _tags(path: Path, rows: Sequence[Row], column: int) -> list[str]:
    """One column of brackets, (A0* … *), as IOB2."""
    tags = []
    role = ""  # of the bracket that is open
    for row in rows:
        field = row.fields[column]
        brackets = BRACKETS.fullmatch(field)
        opened, closes = brackets.groups() if brackets else (None, None)
        if brackets is None or (opened and role) or (closes and not (opened or role)):
            state = f"inside of ({role}*" if role else "outside of brackets"
            raise UsageError(
                f"{path}, line {row.line}: column {column} has {field!r} {state}; write *, (A0*, *) or (A0*)"
            )
        if opened:
            tags.append(f"B-{opened}")
        else:
            tags.append(f"I-{role}" if role else "O")
        role = "" if closes else opened or role
    if role:
        raise UsageError(
            f"{path}, line {rows[-1].line}: ({role}* of column {column} is still open where the sentence ends"
        )
    return tags
