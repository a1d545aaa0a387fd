"""The embedded corpus: a probabilistic language that this project can sample from and score exactly.

`Grammar` samples and scores documents. `write_corpus` writes all files of the corpus and its tasks.
"""

from retable.grammar.corpus import write_corpus
from retable.grammar.language import Grammar

__all__ = ["Grammar", "write_corpus"]
