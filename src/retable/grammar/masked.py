"""A hidden word's true distribution: what may stand in one place of a document, and how likely each word is.

    p(w | the other tokens) = p(document with w) / Σ p(document with w')

The sum is exact. It is cheap because words of one class (nouns of one kind, gender and number, say) are
interchangeable: one of them is tried, and the others are scored only if it leaves the text in the language.
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

GROUPS = (2, 3)  # sizes of the groups of neighbouring hidden places that are refilled together
TRIES = 100  # at refilling a group, in each sweep

T = TypeVar("T", bound=Hashable)


class MaskedWords:
    """The posteriors of hidden words, given the rest of their document."""

    def __init__(self, grammar: Grammar) -> None:
        self._tables = grammar.tables
        self._classes = interchangeable(grammar.lexicon)

    def posterior(self, tokens: Sequence[str], place: int) -> dict[str, float]:
        """Word → p(word | all other tokens of the document), of the words that can stand at `place`, exactly.

        `tokens` are a whole document's (see `tokens_of`). A line end is certain, for what stands before it shows
        that the sentence is over.
        """
        if tokens[place] == LINE_END:
            return {LINE_END: 1.0}
        bound, read = self._bound([*tokens[:place], *tokens[place + 1 :]]), self._reader(tokens, place)
        found: dict[str, NDArray] = {}
        for words in self._classes:
            free = [word for word in words if word not in bound]
            tried = [word for word in words if word in bound]
            if free and read(free[0]) is not None:
                tried += free
            found |= {word: log_joint for word in tried if (log_joint := read(word)) is not None}
        if tokens[place] not in found:
            raise UsageError("the document is not of the grammar; take corpus=grammar")
        log_probabilities = logsumexp(np.stack(list(found.values())), axis=1)
        probabilities = np.exp(log_probabilities - logsumexp(log_probabilities))
        return dict(zip(found, probabilities.tolist(), strict=True))

    def posteriors(
        self, tokens: Sequence[str], hidden: Sequence[int], sweeps: int, uniform: Uniform
    ) -> list[dict[str, float]]:
        """For each hidden place, in order, an estimate of p(word | the tokens that are not hidden), by Gibbs sampling.

        Each sweep refills neighbouring places together (see `_refill`), then draws every hidden word from its posterior
        given the others; the estimate is the mean of these posteriors. The chain starts at the truth, which is a draw
        from the posterior of all hidden words, and so is each of its states. So the estimate's expectation over texts
        is right from the first sweep on, however slowly the chain mixes, and, entropy being concave, that of its
        entropy is at most the true conditional entropy: a lower bound, which rises towards the truth with the sweeps.
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
        """Draw the words at `places`, of one sentence, together: changes of structure take more than one word.

        An independence sampler (Hastings 1970), given a latent class drawn from its posterior: the program runs along
        the text and draws its own words at the places. What it reads elsewhere weighs the outcome.
        """
        start, n_sentences, before, log_prior = self._before(text, places[0])
        free, rest = {place - start for place in places}, text[start:]
        read = self._reader(text, places[0])(text[places[0]])
        assert read is not None  # the text is in the language
        latent = int(draw(dict(enumerate(softmax(read).tolist())), uniform))
        given = np.where(np.arange(len(log_prior)) == latent, 0.0, -np.inf)

        def weight(tokens: Sequence[str]) -> float:
            scorer = Scorer(tokens, self._tables.probabilities, given)
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
        """The names and nations that the `others` mention: a text may ask for one of them and no other."""
        bound: set[str] = set()
        for word in others:
            if word in self._tables.gender_of:
                bound.add(word)
            elif word in self._tables.nation_of:
                bound.update(self._tables.nation_of[word])
        return bound

    def _reader(self, tokens: Sequence[str], place: int) -> Callable[[str], NDArray | None]:
        """word → (latents,), log p(latent, the document with it at `place`), or None outside the language."""
        start, n_sentences, before, log_prior = self._before(tokens, place)

        def read(word: str) -> NDArray | None:
            text = [*tokens[start:place], word, *tokens[place + 1 :]]
            scorer = Scorer(text, self._tables.probabilities, log_prior)
            return scorer.log_joint() if self._follow(scorer, before, n_sentences) else None

        return read

    def _before(self, tokens: Sequence[str], place: int) -> tuple[int, int, Discourse, NDArray]:
        """Of the sentences before that of the `place`: their tokens, their number, what they leave, and (latents,),
        log p(latent, tokens)."""
        ends = [i for i, token in enumerate(tokens[:place]) if token == LINE_END]
        start = ends[-1] + 1 if ends else 0
        scorer = Scorer(tokens[:start], self._tables.probabilities, LOG_PRIOR)
        before = Discourse(self._tables, scorer)
        try:
            for n_sentences in range(len(ends)):
                before.sentence(n_sentences)
        except Rejected:
            raise UsageError("the document is not of the grammar; take corpus=grammar") from None
        return start, len(ends), before, scorer.log_joint()

    def _follow(self, scorer: Scorer, before: Discourse, n_sentences: int) -> bool:
        """Whether all of the scorer's text can stand behind what was `before`."""
        discourse = Discourse(self._tables, scorer)
        discourse.resume(before)
        with suppress(Rejected):
            discourse.document(n_sentences)
            return scorer.n_read == len(scorer.phenomena())
        return False


class Filler(Scorer):
    """Follows the program along a text, and draws the words at its `free` places as the sampler does."""

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
    """One of the keys."""
    cumulative = [*list(accumulate(probabilities.values()))[:-1], 1.0]
    return list(probabilities)[bisect(cumulative, uniform())]


def interchangeable(lexicon: Lexicon) -> list[list[str]]:
    """All words in classes: where one of a class can stand, so can the others, but for names and nations that a text
    has to repeat."""
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
