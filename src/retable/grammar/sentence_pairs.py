"""Near-optimal predictions about two pieces of text: whether they are neighbours, and which piece comes first.

Each piece consists of neighbouring sentences of a document. For pieces A and B, the best prediction follows from Bayes'
rule: compare p(A, then B) with p(A) p(B), or with p(B, then A). The text before a piece is unknown. The judge sums over
topics and moods, and over the antecedents and tenses that are possible after the text before a piece. The judge does
not sum over the nouns and names that the text before a piece may mention. A model can therefore reach the judge's
accuracy, which is slightly below the best possible accuracy.
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

START_DOCUMENTS = 300  # number of sampled documents in which antecedents and tenses at sentence starts are counted

Start = tuple[Referent | None, str]


class SentencePairs:
    """Judges two pieces of text, each a list of sentences."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        starts, merged = count_starts(grammar), Counter[Start]()
        for (antecedent, tense), n in starts.items():  # without a pronoun, the antecedent has no effect
            merged[antecedent and Referent("thing", "neuter", word=""), tense] += n
        self._starts, self._merged = log_shares(starts), log_shares(merged)

    def log_probability(self, sentences: Sequence[str]) -> float:
        """Return log p(sentences), in nats, at a random place of a document that continues after these sentences."""
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
        """Return log [p(second follows first) / p(second is from another document)], with equal priors."""
        apart = self.log_probability(first) + self.log_probability(second)
        return log_ratio(self.log_probability([*first, *second]), apart)

    def log_odds_order(self, first: Sequence[str], second: Sequence[str]) -> float:
        """Return log [p(first precedes second) / p(first follows second)] of neighbouring pieces, with equal priors."""
        return log_ratio(self.log_probability([*first, *second]), self.log_probability([*second, *first]))


def log_ratio(log_p: float, log_q: float) -> float:
    """Return log (p / q), or 0 if p and q are both 0, for example if a text begins inside a sentence."""
    return 0.0 if log_p == log_q == -np.inf else log_p - log_q


def log_shares(counts: Counter[Start]) -> dict[Start, float]:
    return {start: float(np.log(n / counts.total())) for start, n in counts.items()}


def count_starts(grammar: Grammar) -> Counter[Start]:
    """Count the pairs (antecedent without its word, tense) at the sentence starts of sampled documents."""
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
