"""Vocabularies in which some words have a trained vector, and other words have only their spelling.

These vocabularies are for models that read words by their spelling.
"""

import json
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from retable.core.errors import UsageError
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN


class Vocabulary:
    """Words with a trained vector, followed by words that a model represents only by their spelling.

    The first two words are the unknown word and the end mark, which is placed before and after each sentence.

    Args:
        known: words with a vector; the first two are the unknown word and the end mark.
        words: `known`, followed by the words without a vector.
    """

    def __init__(self, known: Sequence[str], words: Sequence[str]):
        self.known, self.words = list(known), list(words)
        self.vocab_size = len(self.known)
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def of_texts(
        cls, train: Iterable[Sequence[str]], others: Iterable[Sequence[str]], with_vectors: Container[str] = ()
    ) -> "Vocabulary":
        """Build the vocabulary of the given sentences.

        Args:
            train: sentences of the training split. A word that occurs only once gets no vector; its occurrence is used
                to train the vector of the unknown word.
            others: sentences of other splits. A word of `others` gets a vector only if it occurs at least twice in
                `train`, or is in `with_vectors`.
            with_vectors: words with a pretrained vector. A word in `with_vectors` gets a vector even if it occurs only
                once, or only in `others`.
        """
        counts = Counter(word for words in train for word in words)
        seen = list(dict.fromkeys([*counts, *(word for words in others for word in words)]))
        known = [word for word in seen if counts[word] > 1 or word in with_vectors]
        known = list(dict.fromkeys([UNKNOWN, END_OF_LINE, *known]))
        return cls(known, list(dict.fromkeys([*known, *seen])))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Load a vocabulary that `save` wrote.

        Raises: UsageError: the file is damaged.
        """
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            return cls(saved["words"][: saved["known"]], saved["words"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a vocabulary: {error}; run the stage train again") from None

    def save(self, path: Path) -> None:
        saved = {"known": self.vocab_size, "words": self.words}
        path.write_text(json.dumps(saved, ensure_ascii=False) + "\n", encoding="utf-8")

    def with_words(self, words: Iterable[str]) -> "Vocabulary":
        """Return a vocabulary extended by words that have only a spelling."""
        return Vocabulary(self.known, list(dict.fromkeys([*self.words, *words])))

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words.

        Raises: KeyError: a word is not in the vocabulary; add it with `with_words`.
        """
        return [self._ids[word] for word in words]

    def sentence(self, words: Sequence[str]) -> list[int]:
        """Return the ids of a sentence, with the end mark before and after it."""
        return self.encode([END_OF_LINE, *words, END_OF_LINE])
