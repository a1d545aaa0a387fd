"""The embedded language: a grammar that samples documents and scores any text exactly."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from retable.core.settings import Positive
from retable.grammar.discourse import Discourse
from retable.grammar.english import English
from retable.grammar.interpreters import Rejected, Sampler, Scorer
from retable.grammar.invented import Invented
from retable.grammar.lexicon import PRONOUNS, Lexicon
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS, Tables

Words = Literal["invented", "english"]
Uniform = Callable[[], float]
Part = Callable[[Discourse], object]

LOG_PRIOR = np.full(N_LATENTS, -np.log(N_LATENTS))


def make_lexicon(scale: Positive = 1.0, lexicon: Words = "invented") -> Lexicon:
    """Build the invented or English lexicon; `scale` multiplies the number of lexemes of every class."""
    return English(scale) if lexicon == "english" else Invented(scale)


class Grammar:
    """A probabilistic language with a closed vocabulary and known probabilities.

    Args:
        scale: multiplies the number of lexemes of every class; 1 gives about 2,800 word types.
        lexicon: "invented" or "english" words, see `Invented` and `English`.

    Attributes:
        vocabulary: all word types, sorted.
    """

    def __init__(self, scale: Positive = 1.0, lexicon: Words = "invented") -> None:
        self.lexicon = make_lexicon(scale, lexicon)
        self.vocabulary = sorted(self.lexicon.words())
        self.tables = Tables(self.lexicon)
        kinds = {(noun.kind, noun.gender) for nouns in self.lexicon.nouns.values() for noun in nouns}
        self._referents: dict[str, list[Referent]] = {pronoun: [] for pronoun in PRONOUNS.values()}
        for kind, gender in sorted(kinds | {(kind, "plural") for kind, _ in kinds}):
            self._referents[PRONOUNS[gender]].append(Referent(kind, gender, word=""))

    def documents(self, seed: int, split: str) -> Iterator[list[str]]:
        """Yield an endless series of documents; each document is a list of sentences.

        Document i depends only on (seed, split, i), and is the same on every machine.
        """
        for index in count():
            uniform = uniforms(seed, split, index)
            tokens = self.sample(uniform, latent=int(uniform() * N_LATENTS))
            yield " ".join(tokens[:-2]).split(f" {LINE_END} ")

    def score(self, document: Sequence[str]) -> NDArray:
        """Return log p(token | earlier tokens) of a document, (tokens,), in nats, summed over latent classes.

        The tokens are the words and the line end of each sentence, and one more line end that closes the document,
        as in the word tokenizer's stream. The value is −inf for the first impossible token and all later tokens.
        """
        return self.score_tokens(tokens_of(document))

    def score_tokens(self, tokens: Sequence[str]) -> NDArray:
        """Return log p(token | earlier tokens) for the first tokens of a document, (tokens,); line ends are "\\n"."""
        return self.read(tokens)[0]

    def read(self, tokens: Sequence[str]) -> tuple[NDArray, list[str]]:
        """Return the scores of a document's first tokens, (tokens,), and the phenomenon that determines each token."""
        scorer = Scorer(tokens, self.tables.probabilities, LOG_PRIOR)
        with suppress(Rejected):
            Discourse(self.tables, scorer).document()
        return scorer.log_probabilities(), scorer.phenomena()

    def log_probability(self, document: Sequence[str]) -> float:
        """Return log p(document) in nats, or −inf if the document is not in the language.

        The result equals the sum of `score(document)`, but is computed faster.
        """
        return float(logsumexp(self.log_joint(tokens_of(document))))

    def sentence_log_probability(self, sentence: str) -> float:
        """Return log p of a sentence and its line end at the start of a document, in nats; −inf outside the language.

        If the sentence opens with a pronoun, the pronoun's antecedent is assumed to be of the kind that makes the
        sentence most probable.
        """
        tokens = [*sentence.split(" "), LINE_END]

        def after(subject: Referent | None) -> NDArray:
            def sentence(discourse: Discourse) -> None:
                discourse.antecedent = subject
                discourse.sentence()

            return self.log_joint(tokens, sentence)

        return max(float(logsumexp(after(subject))) for subject in self._referents.get(tokens[0], [None]))

    def sample(self, uniform: Uniform, latent: int, part: Part = Discourse.document) -> list[str]:
        """Sample the tokens of a document, or of the part of a document that `part` generates.

        Args:
            uniform: returns the next random number in [0, 1).
            latent: the latent class, topic × 2 + mood.
            part: the method of `Discourse` that generates the tokens, by default those of a document.
        """
        sampler = Sampler(uniform, latent)
        part(Discourse(self.tables, sampler))
        return sampler.tokens

    def log_joint(self, tokens: Sequence[str], part: Part = Discourse.document) -> NDArray:
        """Return log p(latent class, tokens), (latents,), in nats, for tokens that `part` can generate."""
        scorer = Scorer(tokens, self.tables.probabilities, LOG_PRIOR)
        with suppress(Rejected):
            part(Discourse(self.tables, scorer))
            if scorer.n_read == len(tokens):
                return scorer.log_joint()
        return np.full(N_LATENTS, -np.inf)


def tokens_of(document: Sequence[str]) -> list[str]:
    """Return the tokens of a document: words and line ends, and a last line end that closes the document."""
    tokens = [token for sentence in document for token in (*sentence.split(" "), LINE_END)]
    return [*tokens, LINE_END]


def uniforms(seed: int, stream: str, index: int) -> Uniform:
    """Return a function that returns random numbers in [0, 1) for item `index` of a random stream.

    The numbers of different items and streams are independent. The numbers come from Philox (Salmon et al. 2011,
    "Parallel random numbers: as easy as 1, 2, 3"), with a key from seed and stream, and a counter that starts at
    `index` × 2^192. numpy guarantees that Philox's raw words are reproducible, but not that the output of its
    `Generator` class is.
    """
    key = np.array([seed, int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "little")], dtype=np.uint64)
    bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, index], dtype=np.uint64))

    def numbers() -> Iterator[float]:
        while True:
            yield from ((bits.random_raw(512) >> np.uint64(11)) * 2.0**-53).tolist()

    return numbers().__next__
