"""Every distribution and every choice of the embedded language, computed once from its lexicon."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from retable.grammar.interpreters import Branch, Table
from retable.grammar.lexicon import (
    BRACKETS,
    DETERMINERS,
    FRAMES,
    N_TOPICS,
    POSSESSIVES,
    PREPOSITIONS,
    PRONOUNS,
    REFLEXIVES,
    WEEKDAYS,
    Lexicon,
)

MOODS = ("negative", "positive")
N_LATENTS = N_TOPICS * len(MOODS)  # latent class = topic × 2 + mood
LINE_END = "\n"
MIN_SENTENCES, MAX_SENTENCES = 3, 12  # of a document
MAX_OPINIONS = 5  # of a sentence

# Probability of the past tense: before the document's first verb, after it (a document keeps to its tense,
# mostly), and in a sentence that opens with an adverb of time.
PAST = {"open": 0.6, "past": 0.96, "present": 0.05, "yesterday": 1.0, "nowadays": 0.0}
HOME_SHARE = 0.75  # of a topic's content words that are its own; the others come from all topics alike
ZIPF_SHIFT = 3.0  # of the r-th word of a class and topic, r from 0: 1 / (r + shift)
CONSISTENT_SHARE = 0.83  # of the evaluative words that fit the mood (or, after "not", contradict it)
SUBJECT_KINDS = {"person": 0.5, "animal": 0.14, "food": 0.07, "thing": 0.12, "place": 0.07, "idea": 0.1}
FRAME_WEIGHTS = {"say": 0.7, "rest": 0.5, "travel": 0.6}  # others 1
DETERMINER_WEIGHTS = {
    "the": 8, "some": 1, "no": 0.7, "a": 4, "this": 1.5, "every": 0.8, "each": 0.5, "another": 0.8,
    "these": 1.5, "those": 0.8, "many": 1, "several": 0.7, "two": 0.9, "three": 0.6, "most": 0.5,
}  # fmt: skip
POSSESSIVE_SHARE = 0.25  # of an object's determiners that refer to the subject
NUMBER_SHARES = {
    "any": {"singular": 0.62, "plural": 0.38},
    "singular": {"singular": 1.0},
    "plural": {"plural": 1.0},
}
AUXILIARIES = {  # (present singular, present plural, past singular, past plural)
    "be": ("is", "are", "was", "were"),
    "have": ("has", "have", "had", "had"),
    "do": ("does", "do", "did", "did"),
    "can": ("can", "can", "could", "could"),
    "will": ("will", "will", "would", "would"),
    "may": ("may", "may", "might", "might"),
}
# How often a word is taken from those mentioned before and from the associates of the word that governs it.
RECALL_NAMES, RECALL_NATIONS, RECALL_NOUNS, RECALL_VERBS, RECALL_PROPERTIES = 0.45, 0.7, 0.5, 0.7, 0.8


class Tables:
    """The language's tables and branches, dictionaries by what decides which one applies.

    `probabilities`, (rows, latents), holds the rows of all tables.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._blocks: list[NDArray] = []
        self._n_rows = 0
        self.lexicon = lexicon
        self.associates = lexicon.associates
        self.noun_of = {form: noun for nouns in lexicon.nouns.values() for noun in nouns for form in noun.forms}
        self.verb_of = {form: verb for verbs in lexicon.verbs.values() for verb in verbs for form in verb.forms}
        self.gender_of = {name.word: name.gender for name in lexicon.names}
        self.nation_of = {word: nation for nation in lexicon.nations for word in nation}
        self._make_nominal_tables()
        self._make_adjectival_tables()
        self._make_verbal_tables()
        self._make_nominal_branches()
        self._make_verbal_branches()
        self._make_sentence_branches()
        self.probabilities = np.concatenate(self._blocks)
        del self._blocks

    def _table(self, words: Sequence[str], weights: NDArray | Sequence[float], recall: float = 0.0) -> Table:
        """A table of the words of any weight; `weights`, (words,) or (words, latents), need not sum to 1."""
        rows = np.asarray(weights, dtype=float)
        if rows.ndim == 1:
            rows = np.repeat(rows[:, None], N_LATENTS, axis=1)
        kept = np.flatnonzero(rows.sum(axis=1) > 0).tolist()
        rows = rows[kept] / rows[kept].sum(axis=0)
        table = Table([words[i] for i in kept], rows, self._n_rows, recall)
        self._blocks.append(rows)
        self._n_rows += len(rows)
        return table

    def _make_nominal_tables(self) -> None:
        lexicon = self.lexicon
        weights = {kind: by_topic([noun.topic for noun in nouns]) for kind, nouns in lexicon.nouns.items()}
        weights["any"] = np.concatenate([SUBJECT_KINDS[kind] * weights[kind] for kind in lexicon.nouns])
        nouns_of = {**lexicon.nouns, "any": [noun for nouns in lexicon.nouns.values() for noun in nouns]}
        self.noun: dict[tuple[str, str], Table] = {}  # by kind and number
        self.determiner: dict[tuple[str, str | None], Table] = {}  # by number and the agreement of a possible owner
        for number, shares in NUMBER_SHARES.items():
            for kind, nouns in nouns_of.items():
                words = [getattr(noun, form) for form in shares for noun in nouns]
                rows = np.concatenate([share * weights[kind] for share in shares.values()])
                self.noun[kind, number] = self._table(words, rows, RECALL_NOUNS)
            fitting = {
                word: weight
                for word, weight in DETERMINER_WEIGHTS.items()
                if number == "any" or DETERMINERS[word] in ("any", number)
            }
            self.determiner[number, None] = self._table(list(fitting), list(fitting.values()))
            possessive = sum(fitting.values()) * POSSESSIVE_SHARE / (1 - POSSESSIVE_SHARE)
            for owner, word in POSSESSIVES.items():
                self.determiner[number, owner] = self._table([*fitting, word], [*fitting.values(), possessive])
        self.name = self._table([name.word for name in lexicon.names], zipf(len(lexicon.names)), RECALL_NAMES)
        self.nation = {
            role: self._table([getattr(n, role) for n in lexicon.nations], zipf(len(lexicon.nations)), RECALL_NATIONS)
            for role in ("country", "capital", "demonym")
        }
        self.preposition = self._table(list(PREPOSITIONS), zipf(len(PREPOSITIONS)))
        self.bracket = self._table(list(BRACKETS), [3, 2, 1])

    def _make_adjectival_tables(self) -> None:
        adjectives = self.lexicon.adjectives
        descriptive = [adjective for adjective in adjectives if not adjective.polarity]
        evaluative = [adjective for adjective in adjectives if adjective.polarity]
        topical = by_topic([adjective.topic for adjective in descriptive])

        def table(form: str, evaluative_share: float, negated: bool = False, recall: float = 0.0) -> Table:
            moody = by_mood([adjective.polarity * (-1 if negated else 1) for adjective in evaluative])
            words = [getattr(adjective, form) for adjective in (*descriptive, *evaluative)]
            rows = np.concatenate([(1 - evaluative_share) * topical, evaluative_share * moody])
            return self._table(words, rows, recall)

        self.attribute = table("word", 0.25)
        self.predicate = {negated: table("word", 0.5, negated, RECALL_PROPERTIES) for negated in (False, True)}
        self.evaluation = {negated: table("word", 1.0, negated) for negated in (False, True)}
        self.comparative = table("comparative", 0.25, recall=RECALL_PROPERTIES)
        self.adverb = table("adverb", 0.25, recall=RECALL_PROPERTIES)
        self.conjunction = self._table(["and", "but", "or"], [3, 1, 1])
        self.degree = self._table(["very", "quite", "too", "so"], [3, 2, 2, 1])

    def _make_verbal_tables(self) -> None:
        lexicon = self.lexicon
        weights = {frame: by_topic([verb.topic for verb in verbs]) for frame, verbs in lexicon.verbs.items()}

        def table(frames: Collection[str], tenses: dict[str, float]) -> Table:
            """The verbs of the frames in the given forms (form → its share)."""
            verbs = [verb for frame in frames for verb in lexicon.verbs[frame]]
            rows = np.concatenate([FRAME_WEIGHTS.get(frame, 1.0) * weights[frame] for frame in frames])
            words = [getattr(verb, form) for form in tenses for verb in verbs]
            return self._table(words, np.concatenate([share * rows for share in tenses.values()]), RECALL_VERBS)

        def finite(frames: Collection[str]) -> dict[tuple[str, str], Table]:
            """By number and tense."""
            present = {"singular": "singular", "plural": "base"}
            return {
                (number, tense): table(frames, {"past": past, form: 1 - past})
                for number, form in present.items()
                for tense, past in PAST.items()
            }

        able = {kind: [name for name, frame in FRAMES.items() if kind in frame.subjects] for kind in lexicon.nouns}
        acting = {kind: [name for name in able["person"] if FRAMES[name].complement == kind] for kind in lexicon.nouns}
        affecting = {kind: [name for name, f in FRAMES.items() if f.complement == kind] for kind in lexicon.nouns}
        del acting["place"], affecting["place"]  # one travels *to* a place
        # By the subject's kind, but `object_verb` (its subject is a person) and `passive` by the object's.
        self.verb = {kind: finite(frames) for kind, frames in able.items()}
        self.base = {kind: table(frames, {"base": 1.0}) for kind, frames in able.items()}
        self.participle = {kind: table(frames, {"participle": 1.0}) for kind, frames in able.items()}
        self.object_verb = {kind: finite(frames) for kind, frames in acting.items()}
        self.passive = {kind: table(frames, {"participle": 1.0}) for kind, frames in affecting.items()}
        self.say = finite(["say"])
        self.auxiliary = {
            (name, number, tense): self._table(forms, [1 - past, past])
            for name, words in AUXILIARIES.items()
            for number, forms in (("singular", words[0::2]), ("plural", words[1::2]))
            for tense, past in PAST.items()
        }
        self.question = {
            tense: self._table(["does", "do", "did"], [0.6 * (1 - past), 0.4 * (1 - past), past])
            for tense, past in PAST.items()
        }
        self.occasion = self._table(["during", "after", "before"], [2, 2, 1])
        self.weekday = self._table(WEEKDAYS, np.ones(len(WEEKDAYS)))
        self.we = self._table(["i", "we"], [2, 1])
        self.judge = self._table(["think", "believe", "found", "felt"], [4, 3, 2, 1])

    def _make_nominal_branches(self) -> None:
        names = self.name.words
        name_shares = {"person": 0.35, "any": 0.25}
        self.phrase: dict[tuple[str, str], Branch] = {}  # by kind and number
        self.simple_phrase: dict[tuple[str, str], Branch] = {}
        for kind, number in self.noun:
            named = {"name": (name_shares[kind], names)} if kind in name_shares and number != "plural" else {}
            both = {} if number == "singular" else {"both": (0.06, ["both"])}
            bare = {} if number == "singular" else {"bare": (0.15, self.noun[kind, "plural"].words)}
            self.phrase[kind, number] = Branch("noun", **named, **bare, **both)
            self.simple_phrase[kind, number] = Branch("noun", **named, **bare)
        adjectives, demonyms = self.attribute.words, self.nation["demonym"].words
        self.modifier = [  # by the modifiers before it
            Branch("noun", adjective=(0.36, adjectives), demonym=(0.05, demonyms)),
            Branch("noun", adjective=(0.12, adjectives)),
        ]
        self.bracketed = [Branch("no", yes=(share, BRACKETS)) for share in (0.08, 0.35, 0.35)]  # by depth
        self.attached = [Branch("no", yes=(share, PREPOSITIONS)) for share in (0.28, 0.2)]  # by those before it
        self.relative = [Branch("no", yes=(share, ["who", "which"])) for share in (0.2, 0.1)]  # by depth
        determiners = self.determiner["any", None].words
        persons = self.noun["person", "plural"].words
        self.relative_body = Branch("subject", object=(0.4, [*determiners, *persons, *names, "both"]))

    def _make_verbal_branches(self) -> None:
        shares = {"be": 0.16, "have": 0.13, "do": 0.08, "can": 0.05, "will": 0.06, "may": 0.03}
        auxiliaries = {name: (share, set(AUXILIARIES[name])) for name, share in shares.items()}
        self.predication = Branch("finite", adverb=(0.17, self.adverb.words), **auxiliaries)
        self.negation = Branch("no", yes=(0.22, ["not"]))
        common = {"degree": (0.25, self.degree.words), "comparative": (0.3, self.comparative.words)}
        self.property = {"place": Branch("adjective", **common)}  # by kind
        for kind, table in self.passive.items():
            self.property[kind] = Branch("adjective", **common, passive=(0.25, table.words))
        self.agent = Branch("no", yes=(0.6, ["by"]))
        self.reflexive = Branch("no", yes=(0.2, REFLEXIVES.values()))
        self.adjunct = Branch(
            "no", place=(0.14, ["in"]), day=(0.08, ["on"]), occasion=(0.08, ["during", "after", "before"])
        )
        self.location = Branch(
            "noun", capital=(0.45, self.nation["capital"].words), country=(0.3, self.nation["country"].words)
        )
        self.coordination = Branch("no", yes=(0.18, ["and", "but", "or"]))

    def _make_sentence_branches(self) -> None:
        self.link = self._table(["also", "however", "meanwhile", "still", "perhaps", "indeed"], [6, 5, 4, 3, 2, 1])
        openings = {
            "time": (0.06, ["yesterday", "nowadays"]),
            "place": (0.05, ["in"]),
            "linked": (0.12, self.link.words),
            "topic": (0.05, ["as"]),
            "when": (0.04, ["when"]),
            "if": (0.03, ["if"]),
            "question": (0.05, AUXILIARIES["do"][:3]),
            "capital": (0.04, self.nation["capital"].words),
            "country": (0.04, self.nation["country"].words),
            "opinion": (0.1, self.we.words),
        }

        def sentence(n_before: int, antecedent: str | None) -> Branch:
            # This hazard makes all allowed lengths equally likely.
            end = 1 / (MAX_SENTENCES + 1 - n_before) if n_before >= MIN_SENTENCES else 0.0
            options = {name: ((1 - end) * share, words) for name, (share, words) in openings.items()}
            if antecedent:
                options["pronoun"] = (1 - end) * 0.25, [PRONOUNS[antecedent]]
            if n_before == MAX_SENTENCES:
                return Branch("end")
            return Branch("clause", end=(end, [LINE_END]), **options)

        self.sentence = {  # by the sentences before it and the agreement of the last one's subject
            (n_before, antecedent): sentence(n_before, antecedent)
            for n_before in range(MAX_SENTENCES + 1)
            for antecedent in (None, *PRONOUNS)
        }
        self.time = self._table(["yesterday", "nowadays"], [1, 1])
        self.fact = Branch("apposition", definition=(0.4, ["is"]), fame=(0.3, ["has"]))
        self.opinions = [  # by the clauses before it, the first included
            Branch("end", comma=(0.5, [","]), last=(0.35, ["and"])),
            *[Branch("last", comma=(0.4, [","]))] * (MAX_OPINIONS - 3),
            Branch("last"),
        ]


def zipf(n: int) -> NDArray:
    """(n,): Zipf's law with Mandelbrot's shift, not normalised."""
    return 1 / (np.arange(n) + ZIPF_SHIFT)


def by_topic(topics: Sequence[int]) -> NDArray:
    """(words, latents): p(word | latent) of words by home topic, a topic's from the frequent to the rare."""
    shares = np.zeros((len(topics), N_TOPICS))
    for topic in range(N_TOPICS):
        own = np.flatnonzero(np.asarray(topics) == topic)
        shares[own, topic] = zipf(len(own)) / zipf(len(own)).sum()
    mixed = HOME_SHARE * shares + (1 - HOME_SHARE) * shares.mean(axis=1, keepdims=True)
    return np.repeat(mixed, len(MOODS), axis=1)


def by_mood(polarities: Sequence[int]) -> NDArray:
    """(words, latents): p(word | latent) of words by polarity, each one's from the frequent to the rare."""
    polarity = np.asarray(polarities)
    share = np.zeros(len(polarity))
    for sign in (-1, 1):
        own = np.flatnonzero(polarity == sign)
        share[own] = zipf(len(own)) / zipf(len(own)).sum()
    fits = polarity[:, None] == np.array([-1, 1])
    return np.tile(share[:, None] * np.where(fits, CONSISTENT_SHARE, 1 - CONSISTENT_SHARE), (1, N_TOPICS))
