"""What can be known of two pieces of text: whether one goes on with the other, and which came first.

The pieces are neighbouring sentences of a document. By Bayes' rule the best prediction takes the likelihoods' ratio:
p(A, then B) against p(A) p(B), or against p(B, then A). What stood before a piece is not shown. The judge sums over
the antecedents and tenses that it may have left, and over the topics and moods, but not over the nouns and names it may
have mentioned. It so falls a little short of the best: its accuracy is one that can be reached, and close to the bound.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

import numpy as np
from scipy.special import logsumexp

from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler
from retable.grammar.language import Grammar, uniforms
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS

START_DOCUMENTS = 300  # whose sentences tell how often a sentence finds which antecedent and tense

Start = tuple[Referent | None, str]


class SentencePairs:
    """Judges pairs of pieces of text, each a list of sentences."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        starts, merged = count_starts(grammar), Counter[Start]()
        for (antecedent, tense), n in starts.items():  # any antecedent will do where no pronoun asks for it
            merged[antecedent and Referent("thing", "neuter", word=""), tense] += n
        self._starts, self._merged = log_shares(starts), log_shares(merged)

    def log_probability(self, sentences: Sequence[str]) -> float:
        """log p(sentences, somewhere in a document that goes on), in nats."""
        tokens = [token for sentence in sentences for token in (*sentence.split(" "), LINE_END)]

        starts = self._starts if tokens[:1] and tokens[0] in PRONOUNS.values() else self._merged

        def after(start: Start) -> float:
            def piece(discourse: Discourse) -> None:
                discourse.antecedent, discourse.tense = start
                for _ in sentences:
                    discourse.sentence()

            return float(logsumexp(self._grammar.log_joint(tokens, piece)))

        return float(logsumexp([log_share + after(start) for start, log_share in starts.items()]))

    def log_odds_next(self, first: Sequence[str], second: Sequence[str]) -> float:
        """log p(second goes on with first) / p(it is of another document), where the two are equally likely."""
        apart = self.log_probability(first) + self.log_probability(second)
        return log_ratio(self.log_probability([*first, *second]), apart)

    def log_odds_order(self, first: Sequence[str], second: Sequence[str]) -> float:
        """log p(first stood before second) / p(it stood behind it), of neighbours, both orders equally likely."""
        return log_ratio(self.log_probability([*first, *second]), self.log_probability([*second, *first]))


def log_ratio(log_p: float, log_q: float) -> float:
    """log p/q; 0 where both are impossible, as with a text that begins in the middle of a sentence."""
    return 0.0 if log_p == log_q == -np.inf else log_p - log_q


def log_shares(counts: Counter[Start]) -> dict[Start, float]:
    return {start: float(np.log(n / counts.total())) for start, n in counts.items()}


def count_starts(grammar: Grammar) -> Counter[Start]:
    """How often sentences of sampled documents find which antecedent, its word left out, and which tense."""
    counts: Counter[Start] = Counter()
    for index in range(START_DOCUMENTS):
        uniform = uniforms(0, "starts", index)
        discourse = Discourse(grammar.tables, Sampler(uniform, int(uniform() * N_LATENTS)))
        for n_sentences in count():
            antecedent = discourse.antecedent and discourse.antecedent._replace(word="")
            start = antecedent, discourse.tense
            if not discourse.sentence(n_sentences):
                break
            counts[start] += 1
    return counts
