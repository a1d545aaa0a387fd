"""Read semantic roles in the columns of CoNLL-2005 (Carreras and Màrquez 2005) and CoNLL-2012 (Pradhan et al. 2012).

Each predicate of a sentence has a column of bracketed arguments, as in PropBank (Palmer, Gildea and Kingsbury 2005).
"""

import re
from collections.abc import Sequence
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt
from retable.corpora.columns import Row, TaggedSentence, read_sentences, require_columns

BRACKETS = re.compile(r"(?:\(([^()*]+))?\*(\))?")
MARKS = ("#begin", "#end")  # first words of the lines that begin and end a document in CoNLL-2012


def read_propositions(
    path: Path, word: NonNegativeInt, first: NonNegativeInt, behind: NonNegativeInt = 0
) -> list[TaggedSentence]:
    """Read one copy of a sentence per predicate, with the predicate's arguments as IOB2 tags.

    The predicate is the span of type V, and the attribute `predicate` is the index of the first word of this span. The
    settings for CoNLL-2012 are word=3, first=11, behind=1. For CoNLL-2005, paste the columns of the props files after
    the columns of the words files, and set word=0, first=2.

    Args:
        word: the column of words, counted from 0.
        first: the first column of arguments. Each predicate of a sentence has one column of arguments, which contains
            one span of type V; these columns are in the order of the predicates.
        behind: number of columns after the columns of arguments.

    Raises: UsageError: the file is missing or has no predicates, or columns or brackets of a sentence are malformed.
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
                    f"{path}, line {row.line}: expects {width} columns, as in the sentence's first line, but got "
                    f"{len(row.fields)}"
                )
        words = [row.fields[word] for row in rows]
        for column in range(first, width - behind):
            tags = _tags(path, rows, column)
            predicates = [place for place, tag in enumerate(tags) if tag == "B-V"]
            if len(predicates) != 1:
                raise UsageError(
                    f"{path}, line {rows[0].line}: column {column} of the sentence marks {len(predicates)} predicates; "
                    "write one (V*) per column"
                )
            propositions.append(TaggedSentence(words, tags, predicates[0]))
    if not propositions:
        raise UsageError(
            f"{path} has no predicates in columns from first={first} on, without the last behind={behind} columns; "
            "correct first or behind"
        )
    return propositions


def _tags(path: Path, rows: Sequence[Row], column: int) -> list[str]:
    """Convert one column of bracketed arguments, such as (A0* … *), to IOB2 tags."""
    tags = []
    role = ""  # role of the argument that is still open, or "" outside arguments
    for row in rows:
        field = row.fields[column]
        brackets = BRACKETS.fullmatch(field)
        opened, closes = brackets.groups() if brackets else (None, None)
        if brackets is None or (opened and role) or (closes and not (opened or role)):
            state = f"inside ({role}*" if role else "outside brackets"
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
            f"{path}, line {rows[-1].line}: ({role}* in column {column} is not closed in its sentence; close it with *)"
        )
    return tags
