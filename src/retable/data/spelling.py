"""Words that a model knows by a vector of their own, or by their spelling alone."""

import json
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from retable.core.errors import UsageError
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN


class Vocabulary:
    """Words that a model knows by a vector of their own, and behind them those that it knows by their spelling alone.

    The first two stand for an unknown word, and for either end of a sentence.

    known: words with a vector, those two first. words: these, and behind them those that are spelt.
    """

    def __init__(self, known: Sequence[str], words: Sequence[str]):
        self.known, self.words = list(known), list(words)
        self.vocab_size = len(self.known)
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def of_texts(
        cls, train: Iterable[Sequence[str]], others: Iterable[Sequence[str]], with_vectors: Container[str] = ()
    ) -> "Vocabulary":
        """The words of some sentences.

        train: those of the training split. A word that occurs once there gets no vector: of such words the unknown
        word's is learnt.
        others: further sentences, whose words are spelt.
        with_vectors: words that have one from elsewhere, wherever they occur.
        """
        counts = Counter(word for words in train for word in words)
        seen = list(dict.fromkeys([*counts, *(word for words in others for word in words)]))
        known = [word for word in seen if counts[word] > 1 or word in with_vectors]
        known = list(dict.fromkeys([UNKNOWN, END_OF_LINE, *known]))
        return cls(known, list(dict.fromkeys([*known, *seen])))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Raises UsageError where the file can't be read."""
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            return cls(saved["words"][: saved["known"]], saved["words"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} holds no vocabulary: {error}; run the stage train again") from None

    def save(self, path: Path) -> None:
        saved = {"known": self.vocab_size, "words": self.words}
        path.write_text(json.dumps(saved, ensure_ascii=False) + "\n", encoding="utf-8")

    def with_words(self, words: Iterable[str]) -> "Vocabulary":
        """The same, and behind its words those of `words` that it lacks, to be spelt."""
        return Vocabulary(self.known, list(dict.fromkeys([*self.words, *words])))

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of words, all of which it has been given."""
        return [self._ids[word] for word in words]

    def sentence(self, words: Sequence[str]) -> list[int]:
        """The ids of a sentence, between those of its ends."""
        return self.encode([END_OF_LINE, *words, END_OF_LINE])
