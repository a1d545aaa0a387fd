"""Precision, recall and F1 of semantic roles, as srl-eval.pl counts them (the CoNLL shared tasks of 2004, 2005 and, on
OntoNotes, 2012; Carreras and Màrquez 2005, section 2.2).

A chunk C-A1 goes on with the last A1 before it: both are one argument, which is right if all its parts are; without an
A1 it is one itself. V is no argument: a labeller is given its predicate.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retable.metrics.spans import Tags, chunks

PREDICATE, CONTINUATION = "V", "C-"


class Argument(NamedTuple):
    role: str
    parts: tuple[tuple[int, int], ...]  # where each begins, and the place behind its last word


def arguments(tags: Tags) -> set[Argument]:
    """Those of one predicate, of whose sentence `tags` are, in any scheme of chunks."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # the parts of the last argument of each role
    for kind, start, end in chunks(tags):
        role = kind.removeprefix(CONTINUATION)
        if role == kind or role not in last:
            last[role] = []
            found.append((role, last[role]))
        last[role].append((start, end))
    return {Argument(role, tuple(parts)) for role, parts in found if role != PREDICATE}


def role_counts(labels: Sequence[Tags], predictions: Sequence[Tags]) -> NDArray[np.int64]:
    """(n, 3): of each predicate the arguments that are right, those predicted, and those labelled."""
    pairs = ((arguments(true), arguments(guessed)) for true, guessed in zip(labels, predictions, strict=True))
    counts = [(len(true & guessed), len(guessed), len(true)) for true, guessed in pairs]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)
