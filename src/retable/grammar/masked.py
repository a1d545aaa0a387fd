"""The true distribution of hidden words in a document of the embedded language.

    p(w | the other tokens) = p(document with w) / Σ p(document with w')

The sum is computed exactly. The sum needs little time, because words of one class are interchangeable, for example
nouns of one kind, gender and number. First, one word per class is scored. The other words of the class are scored only
if the text with the first word is in the language.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from retable.core.errors import UsageError
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Branch, Rejected, Sampler, Scorer, Table
from retable.grammar.language import LOG_PRIOR, Grammar, Uniform
from retable.grammar.lexicon import Adjective, Lexicon, Noun, Verb
from retable.grammar.tables import LINE_END

GROUPS = (2, 3)  # sizes of the groups of neighbouring hidden places that are resampled together
TRIES = 100  # number of proposals per group and sweep

T = TypeVar("T", bound=Hashable)


class MaskedWords:
    """Computes posteriors of hidden words, given the rest of their document."""

    def __init__(self, grammar: Grammar) -> None:
        self._tables = grammar.tables
        self._classes = interchangeable(grammar.lexicon)

    def posterior(self, tokens: Sequence[str], place: int) -> dict[str, float]:
        """Compute p(word | all other tokens of the document) exactly, for all words possible at `place`.

        `tokens` are the tokens of a complete document (see `tokens_of`). A line end has probability 1, because the
        tokens before it show that the sentence is complete.

        Raises: UsageError: the document is not in the language.
        """
        if tokens[place] == LINE_END:
            return {LINE_END: 1.0}
        bound, read = self._bound([*tokens[:place], *tokens[place + 1 :]]), self._reader(tokens, place)
        log_joints: dict[str, NDArray] = {}
        for words in self._classes:
            free = [word for word in words if word not in bound]
            tried = [word for word in words if word in bound]
            if free and read(free[0]) is not None:
                tried += free
            log_joints |= {word: log_joint for word in tried if (log_joint := read(word)) is not None}
        if tokens[place] not in log_joints:
            raise UsageError("the document is not in the grammar's language; write corpus=grammar")
        log_probabilities = logsumexp(np.stack(list(log_joints.values())), axis=1)
        probabilities = np.exp(log_probabilities - logsumexp(log_probabilities))
        return dict(zip(log_joints, probabilities.tolist(), strict=True))

    def posteriors(
        self, tokens: Sequence[str], hidden: Sequence[int], sweeps: int, uniform: Uniform
    ) -> list[dict[str, float]]:
        """Estimate p(word | all visible tokens) for each place in `hidden`, in this order, by Gibbs sampling.

        Each sweep resamples neighbouring places together (see `_refill`), then draws each hidden word from its
        posterior given all other words. The estimate is the mean of these posteriors. The chain starts at the true
        words. The true words are a draw from the joint posterior of all hidden words, so each later state of the chain
        is such a draw, too. The estimate's expectation over texts is therefore exact from the first sweep on, however
        slowly the chain mixes. Entropy is concave, so the expected entropy of the estimate is a lower bound of the true
        conditional entropy. The bound rises towards the true entropy with the number of sweeps.
        """
        text, sums = list(tokens), [defaultdict[str, float](float) for _ in hidden]
        groups = [hidden[i : i + size] for size in GROUPS for i in range(len(hidden) - size + 1)]
        for _ in range(sweeps):
            for group in groups:
                if LINE_END not in text[group[0] : group[-1]]:
                    self._refill(text, group, uniform)
            for place, total in zip(hidden, sums, strict=True):
                posterior = self.posterior(text, place)
                for word, probability in posterior.items():
                    total[word] += probability / sweeps
                text[place] = draw(posterior, uniform)
        return [dict(total) for total in sums]

    def _refill(self, text: list[str], places: Sequence[int], uniform: Uniform) -> None:
        """Resample the words at several `places` of a sentence at once, so that the sentence's structure can change.

        The method is an independence sampler (Hastings 1970), with a latent class that is drawn from its posterior. To
        make a proposal, the grammar's program follows the text and draws new words at `places`. The weight of the
        proposal is the probability of the words at all other places.
        """
        start, n_sentences, before, log_prior = self._before(text, places[0])
        free, rest = {place - start for place in places}, text[start:]
        read = self._reader(text, places[0])(text[places[0]])
        assert read is not None  # the current text is in the language, so `read` does not return None
        latent = int(draw(dict(enumerate(softmax(read).tolist())), uniform))
        log_latent = np.where(np.arange(len(log_prior)) == latent, 0.0, -np.inf)

        def weight(tokens: Sequence[str]) -> float:
            scorer = Scorer(tokens, self._tables.probabilities, log_latent)
            self._follow(scorer, before, n_sentences)
            return float(np.delete(scorer.log_probabilities(), list(free)).sum())

        current = weight(rest)
        for _ in range(TRIES):
            filler = Filler(rest, free, self._tables.probabilities, Sampler(uniform, latent))
            if self._follow(filler, before, n_sentences):
                new = weight(filler.text)
                if uniform() < np.exp(min(new - current, 0.0)):
                    rest, current = filler.text, new
        text[start:] = rest

    def _bound(self, others: Sequence[str]) -> set[str]:
        """Return the names and nations in `others`; a hidden place may require one of these words."""
        bound: set[str] = set()
        for word in others:
            if word in self._tables.gender_of:
                bound.add(word)
            elif word in self._tables.nation_of:
                bound.update(self._tables.nation_of[word])
        return bound

    def _reader(self, tokens: Sequence[str], place: int) -> Callable[[str], NDArray | None]:
        """Return a function that maps a word at `place` to log p(latent class, document), or to None if impossible."""
        start, n_sentences, before, log_prior = self._before(tokens, place)

        def read(word: str) -> NDArray | None:
            text = [*tokens[start:place], word, *tokens[place + 1 :]]
            scorer = Scorer(text, self._tables.probabilities, log_prior)
            return scorer.log_joint() if self._follow(scorer, before, n_sentences) else None

        return read

    def _before(self, tokens: Sequence[str], place: int) -> tuple[int, int, Discourse, NDArray]:
        """Read all sentences before the sentence that contains `place`.

        Returns: for the sentences read, the number of tokens, the number of sentences, the state after the last
            sentence, and log p(latent class, tokens), (latents,).
        """
        ends = [i for i, token in enumerate(tokens[:place]) if token == LINE_END]
        start = ends[-1] + 1 if ends else 0
        scorer = Scorer(tokens[:start], self._tables.probabilities, LOG_PRIOR)
        before = Discourse(self._tables, scorer)
        try:
            for n_sentences in range(len(ends)):
                before.sentence(n_sentences)
        except Rejected:
            raise UsageError("the document is not in the grammar's language; write corpus=grammar") from None
        return start, len(ends), before, scorer.log_joint()

    def _follow(self, scorer: Scorer, before: Discourse, n_sentences: int) -> bool:
        """Return whether the language allows the scorer's whole text after the state `before`."""
        discourse = Discourse(self._tables, scorer)
        discourse.resume(before)
        with suppress(Rejected):
            discourse.document(n_sentences)
            return scorer.n_read == len(scorer.phenomena())
        return False


class Filler(Scorer):
    """A scorer that draws the words at the `free` places of its text with a sampler."""

    def __init__(self, tokens: Sequence[str], free: Collection[int], probabilities: NDArray, sampler: Sampler) -> None:
        super().__init__(tokens, probabilities, LOG_PRIOR)
        self._free, self._sampler = free, sampler

    @property
    def text(self) -> list[str]:
        return self._tokens[:-1]

    def emit(self, word: str) -> None:
        if self.n_read in self._free:
            self._tokens[self.n_read] = word
        super().emit(word)

    def choose(self, branch: Branch) -> str:
        return self._sampler.choose(branch) if self.n_read in self._free else super().choose(branch)

    def draw(self, table: Table, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        if self.n_read in self._free:
            self._tokens[self.n_read] = self._sampler.draw(table, recalled, used)
        return super().draw(table, recalled, used)


def draw(probabilities: Mapping[T, float], uniform: Uniform) -> T:
    """Draw a key of `probabilities` at random; the values are the probabilities of the keys."""
    cumulative = [*list(accumulate(probabilities.values()))[:-1], 1.0]
    return list(probabilities)[bisect(cumulative, uniform())]


def interchangeable(lexicon: Lexicon) -> list[list[str]]:
    """Group all words into classes; the words of a class are interchangeable at any place.

    Names and nations are an exception: a text may require one particular name or nation.
    """
    classes: dict[Hashable, list[str]] = defaultdict(list)

    def add(lexeme: Noun | Verb | Adjective, *features: Hashable) -> None:
        for form in lexeme.forms:
            classes[type(lexeme), *features, lexeme.index(form)].append(form)

    for noun in (noun for nouns in lexicon.nouns.values() for noun in nouns):
        add(noun, noun.kind, noun.gender, bool(noun.plural), lexicon.article(noun.singular))
    for verb in (verb for verbs in lexicon.verbs.values() for verb in verbs):
        add(verb, verb.frame, verb.particle, verb.past == verb.participle)
    for adjective in lexicon.adjectives:
        has_degrees = bool(adjective.comparative or adjective.adverb)
        add(adjective, adjective.polarity == 0, adjective.kinds, has_degrees, lexicon.article(adjective.word))
    for name in lexicon.names:
        classes["name", name.gender].append(name.word)
    for role in ("country", "capital"):
        classes[role] = [getattr(nation, role) for nation in lexicon.nations]
    for nation in lexicon.nations:
        classes["demonym", lexicon.article(nation.demonym)].append(nation.demonym)
    return [*classes.values(), *([word] for word in sorted(lexicon.function_words()))]
