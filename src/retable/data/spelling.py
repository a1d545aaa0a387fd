"""Words that a model knows by a vector of their own, or by their spelling alone."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN


class Vocabulary:
    """Words that a model knows by a vector of their own, and behind them those that it knows by their spelling alone.

    The first two stand for an unknown word, and for either end of a sentence.

    train: the sentences of the training split. A word that occurs once there gets no vector: of such words the unknown
        word's is learnt.
    others: further sentences, whose words are spelt.
    with_vectors: words that have one from elsewhere, wherever they occur.
    """

    def __init__(
        self, train: Iterable[Sequence[str]], others: Iterable[Sequence[str]], with_vectors: Container[str] = ()
    ):
        counts = Counter(word for words in train for word in words)
        seen = list(dict.fromkeys([*counts, *(word for words in others for word in words)]))
        known = [word for word in seen if counts[word] > 1 or word in with_vectors]
        self.known = list(dict.fromkeys([UNKNOWN, END_OF_LINE, *known]))
        self.words = list(dict.fromkeys([*self.known, *seen]))
        self.vocab_size = len(self.known)
        self._ids = {word: i for i, word in enumerate(self.words)}

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of words, all of which it has been given."""
        return [self._ids[word] for word in words]

    def sentence(self, words: Sequence[str]) -> list[int]:
        """The ids of a sentence, between those of its ends."""
        return self.encode([END_OF_LINE, *words, END_OF_LINE])
