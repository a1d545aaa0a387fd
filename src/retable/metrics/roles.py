"""Counts of semantic roles for precision, recall and F1, as in srl-eval.pl.

srl-eval.pl is the official script of the CoNLL shared tasks of 2004 and 2005 (Carreras and Màrquez 2005, section 2.2).
The script is also used on OntoNotes with the data of the shared task of 2012.

A chunk C-A1 continues the last A1 before it. The chunks A1 and C-A1 are one argument, which is correct only if all its
parts are correct. Without an A1 before it, a C-A1 is a separate argument. The role V is not counted, because it is the
predicate, which is given in the input.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retable.metrics.spans import Tags, chunks

PREDICATE, CONTINUATION = "V", "C-"


class Argument(NamedTuple):
    """An argument of a predicate, in one or more parts."""

    role: str
    parts: tuple[tuple[int, int], ...]  # per part: index of its first word, and of the word after its last word


def arguments(tags: Tags) -> set[Argument]:
    """Return the arguments of one predicate from the tags of its sentence, in any chunk scheme."""
    results: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # maps each role to the parts of its last argument
    for kind, start, end in chunks(tags):
        role = kind.removeprefix(CONTINUATION)
        if role == kind or role not in last:
            last[role] = []
            results.append((role, last[role]))
        last[role].append((start, end))
    return {Argument(role, tuple(parts)) for role, parts in results if role != PREDICATE}


def role_counts(labels: Sequence[Tags], predictions: Sequence[Tags]) -> NDArray[np.int64]:
    """Count the correct, predicted and labelled arguments of each predicate, (n, 3).

    Args:
        labels, predictions: for each predicate, the tags of the words of its sentence.
    """
    pairs = ((arguments(true), arguments(guessed)) for true, guessed in zip(labels, predictions, strict=True))
    counts = [(len(true & guessed), len(guessed), len(true)) for true, guessed in pairs]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)
