"""Documents of the embedded language and their summaries: what each holds of things.

A document's mood is a hidden variable, and its sentences of opinion ("i think that …", "we found that …") are where it
shows: all that they say of a thing is drawn by it. The summary is these sentences, in their order. None of them opens
with a pronoun or has a possessive, so that it can be understood on its own. Documents without an opinion are passed
over.

A sentence's first word tells whether it is an opinion, so the best score is 100. Opinions are as likely at the end of a
document as at its beginning: its first sentences are a poor summary.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.corpora.summaries import Summarised
from retable.corpora.text import SPLITS
from retable.grammar.language import Grammar, Words


class GrammarSummaries:
    """Documents with their summaries, a sentence a line; `inputs` are none: the language is in the code.

    seed: of all streams; each split has its own.
    documents: split → how many.
    scale, lexicon: see `Grammar`.
    """

    def __init__(
        self, seed: Seed, documents: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
    ):
        if set(documents) != set(SPLITS) or min(documents.values()) < 1:
            sizes = ", ".join(SPLITS)
            raise UsageError(f"documents is {dict(documents)}; give a number of 1 at least to each of {sizes}")
        self.inputs: list[Path] = []
        self._seed, self._documents, self._grammar = seed, documents, Grammar(scale, lexicon)

    def splits(self) -> dict[str, list[Summarised]]:
        """The documents of train, validation and test."""
        return {split: [*islice(self._of(split), self._documents[split])] for split in SPLITS}

    def _of(self, split: str) -> Iterator[Summarised]:
        openings = {*self._grammar.tables.we.words}
        for document in self._grammar.documents(self._seed, f"summaries/{split}"):
            opinions = [sentence for sentence in document if sentence.split(" ")[0] in openings]
            if opinions:
                yield Summarised("\n".join(document), "\n".join(opinions))
