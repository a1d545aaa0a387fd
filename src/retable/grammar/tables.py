"""All probability tables and branches of the embedded language, computed once from its lexicon."""

from collections.abc import Collection, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from retable.grammar.interpreters import Branch, Table
from retable.grammar.lexicon import (
    ANY,
    BRACKETS,
    N_TOPICS,
    POSSESSIVES,
    PRONOUNS,
    REFLEXIVES,
    SINGULARS,
    WEEKDAYS,
    Adjective,
    Lexicon,
    Noun,
)

MOODS = ("negative", "positive")
N_LATENTS = N_TOPICS * len(MOODS)  # latent class = topic × 2 + mood
LINE_END = "\n"
MIN_SENTENCES, MAX_SENTENCES = 3, 12  # per document
MAX_OPINIONS = 5  # per sentence

# Probability of the past tense for the document's first verb, and in sentences that open with an adverb of time. After
# the first verb, the lexicon's `past_shares` apply.
PAST = {"open": 0.6, "yesterday": 1.0, "nowadays": 0.0}
PAST_JUDGES = ("found", "felt")
HOME_SHARE = 0.75  # fraction of content words from the document's topic; all other words are from any topic
ZIPF_SHIFT = 3.0  # within a class and topic, the word of rank r (from 0) has weight 1 / (r + ZIPF_SHIFT)
CONSISTENT_SHARE = 0.83  # fraction of evaluative words that fit the mood, or, after "not", contradict it
POSSESSIVE_SHARE = 0.25  # fraction of an object's determiners that are possessives and refer to the subject
NUMBER_SHARES = {"any": {"singular": 0.62, "plural": 0.38}, "plural": {"plural": 1.0}}
NUMBER_SHARES |= {number: {"singular": 1.0} for number in SINGULARS}
AUXILIARIES = {  # forms: (present singular, present plural, past singular, past plural)
    "be": ("is", "are", "was", "were"),
    "have": ("has", "have", "had", "had"),
    "do": ("does", "do", "did", "did"),
    "can": ("can", "can", "could", "could"),
    "will": ("will", "will", "would", "would"),
    "may": ("may", "may", "might", "might"),
}
# Probabilities that a word is recalled: drawn only from earlier mentions and from associates of the word that governs
# it.
RECALL_NAMES, RECALL_NATIONS, RECALL_NOUNS, RECALL_VERBS, RECALL_PROPERTIES = 0.45, 0.7, 0.5, 0.7, 0.8


class Tables:
    """All tables and branches of the language, in dictionaries. A key is the context that selects a table or branch.

    `probabilities`, (rows, latents), contains the rows of all tables.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._blocks: list[NDArray] = []
        self._n_rows = 0
        self.lexicon, self.past = lexicon, {**PAST, **lexicon.past_shares}
        self.associates = lexicon.associates
        self.noun_of = {form: noun for nouns in lexicon.nouns.values() for noun in nouns for form in noun.forms}
        self.verb_of = {form: verb for verbs in lexicon.verbs.values() for verb in verbs for form in verb.forms}
        self.adjective_of = {each.word: each for each in lexicon.adjectives}
        self.descriptive_of = {form: each for each in lexicon.adjectives if not each.polarity for form in each.forms}
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
        """Make a table of the non-empty words with positive weight.

        `weights` have the shape (words,) or (words, latents); their sums need not be 1.
        """
        rows = np.asarray(weights, dtype=float)
        if rows.ndim == 1:
            rows = np.repeat(rows[:, None], N_LATENTS, axis=1)
        kept = [i for i in np.flatnonzero(rows.sum(axis=1) > 0).tolist() if words[i]]
        rows = rows[kept] / rows[kept].sum(axis=0)
        table = Table([words[i] for i in kept], rows, self._n_rows, recall)
        self._blocks.append(rows)
        self._n_rows += len(rows)
        return table

    def _make_nominal_tables(self) -> None:
        lexicon, nouns = self.lexicon, self.lexicon.nouns
        weights = {kind: by_topic([noun.topic for noun in nouns[kind]]) for kind in nouns}
        numbers = dict.fromkeys(("any", "singular", "plural", *lexicon.determiners.values()))
        self.noun: dict[tuple[str, str], Table] = {}  # key: selection and number; a key without nouns is absent
        # The key of `determiner` consists of selection, number, and the agreement class of the referent to which a
        # possessive may refer.
        self.determiner: dict[tuple[str, str, str | None], Table] = {}
        for selection in self._selections():
            kinds = lexicon.kinds(selection)
            shares = lexicon.subject_kinds if len(kinds) > 1 else {kinds[0]: 1.0}
            rows = np.concatenate([shares[kind] * weights[kind] for kind in kinds])
            for number in numbers:
                forms = NUMBER_SHARES[number]
                words = [
                    self._noun_form(noun, form, number) for form in forms for kind in kinds for noun in nouns[kind]
                ]
                if any(words):
                    scaled = np.concatenate([share * rows for share in forms.values()])
                    self.noun[selection, number] = self._table(words, scaled, RECALL_NOUNS)
            for number in ("any", "singular", "plural"):
                fitting = {
                    word: weight
                    for word, weight in lexicon.determiner_weights.items()
                    if "any" in (own := lexicon.determiners[word], number)
                    or (own in SINGULARS) == (number == "singular")
                    if (selection, number if own == "any" else own) in self.noun
                }
                self.determiner[selection, number, None] = self._table(list(fitting), list(fitting.values()))
                possessive = sum(fitting.values()) * POSSESSIVE_SHARE / (1 - POSSESSIVE_SHARE)
                for owner, word in POSSESSIVES.items():
                    owned = [*fitting, word], [*fitting.values(), possessive]
                    self.determiner[selection, number, owner] = self._table(*owned)
        self.name = self._table([name.word for name in lexicon.names], zipf(len(lexicon.names)), RECALL_NAMES)
        self.nation = {
            role: self._table([getattr(n, role) for n in lexicon.nations], zipf(len(lexicon.nations)), RECALL_NATIONS)
            for role in ("country", "capital")
        }
        self.demonym: dict[str, Table] = {}  # key: number
        for number in numbers:
            words = [each.demonym if self._sounds(each.demonym, number) else "" for each in lexicon.nations]
            if any(words):
                self.demonym[number] = self._table(words, zipf(len(words)), RECALL_NATIONS)
        self.preposition: dict[str, Table] = {}  # key: kind of the noun before the preposition
        for kind in lexicon.subject_kinds:
            words = [word for word, each in lexicon.prepositions.items() if kind in lexicon.kinds(each.heads)]
            if words:
                self.preposition[kind] = self._table(words, zipf(len(words)))
        self.bracket = self._table(list(BRACKETS), lexicon.bracket_weights)

    def _selections(self) -> list[str]:
        """Return all selections of nouns that phrases can require, and the intersections with adjectives' selections.

        The attribute `narrowed` maps a phrase's and an adjective's selection to their intersection.
        """
        lexicon = self.lexicon
        needed = dict.fromkeys([ANY, *lexicon.subject_kinds, lexicon.occasion, lexicon.fame, lexicon.location])
        needed |= dict.fromkeys(each.objects for each in lexicon.prepositions.values())
        for frame in lexicon.frames.values():
            needed |= dict.fromkeys(each for each in (frame.complement, frame.agent) if each not in (None, "clause"))
        fits = {adjective.kinds for adjective in lexicon.adjectives}
        self.narrowed: dict[tuple[str, str], str] = {}  # key: selection of the phrase, selection of the adjective
        new = list(needed)
        while new:
            pairs = {(selection, kinds): lexicon.both(selection, kinds) for selection in new for kinds in sorted(fits)}
            new = [each for each in dict.fromkeys(pairs.values()) if each and each not in needed]
            self.narrowed |= pairs
            needed |= dict.fromkeys(new)
        return list(needed)

    def _sounds(self, word: str, number: str) -> bool:
        """Return whether `word` can follow a determiner that requires `number`."""
        return number not in ("a", "an") or self.lexicon.article(word) == number

    def _noun_form(self, noun: Noun, form: str, number: str) -> str:
        """Return a noun's form, singular or plural; "" if a determiner that requires `number` excludes the form."""
        word = str(getattr(noun, form))
        counts = bool(noun.plural) or number not in ("count", "a", "an")
        return word if word and counts and self._sounds(word, number) else ""

    def _make_adjectival_tables(self) -> None:
        lexicon = self.lexicon

        def table(
            adjectives: Sequence[Adjective],
            form: str,
            evaluative_share: float,
            negated: bool = False,
            recall: float = 0.0,
        ) -> Table | None:
            """Make a table of adjectives, or return None if no adjective fits.

            Evaluative adjectives are included only if adjectives of both polarities fit.
            """
            descriptive = [each for each in adjectives if not each.polarity]
            evaluative = [each for each in adjectives if each.polarity]
            if len({each.polarity for each in evaluative}) < len(MOODS):
                evaluative = []
            words = [getattr(adjective, form) for adjective in (*descriptive, *evaluative)]
            if not words or (evaluative_share == 1 and not evaluative):
                return None
            key = tuple(words), evaluative_share, negated
            if key not in known:
                topical = by_topic([adjective.topic for adjective in descriptive])
                moody = by_mood([adjective.polarity * (-1 if negated else 1) for adjective in evaluative])
                rows = np.concatenate([(1 - evaluative_share) * topical, evaluative_share * moody])
                known[key] = self._table(words, rows, recall)
            return known[key]

        known: dict[tuple, Table] = {}
        # The key of `attribute` consists of selection, number, and whether the adjective is the noun's second
        # adjective.
        self.attribute: dict[tuple[str, str, bool], Table] = {}
        for selection, number in self.noun:
            after = "count" if number in ("a", "an") else number
            fitting = [
                adjective
                for adjective in lexicon.adjectives
                if self._sounds(adjective.word, number)
                and (self.narrowed[selection, adjective.kinds], after) in self.noun
            ]
            for is_second in (False, True):
                if is_second and lexicon.natural:
                    fitting = [adjective for adjective in fitting if not adjective.polarity]
                if attribute := table(fitting, "word", 0.25):
                    self.attribute[selection, number, is_second] = attribute
        # The key of the following tables of adjectives and adverbs is the kind of the subject. In `predicate`,
        # `evaluation` and `graded`, the key also contains whether "not" precedes the adjective.
        self.predicate: dict[tuple[str, bool], Table] = {}
        self.evaluation: dict[tuple[str, bool], Table] = {}
        self.graded: dict[tuple[str, bool], Table] = {}  # adjectives after "very"
        self.comparative: dict[str, Table] = {}
        self.adverb: dict[str, Table] = {}
        for kind in lexicon.subject_kinds:
            own = [adjective for adjective in lexicon.adjectives if kind in lexicon.kinds(adjective.kinds)]
            for negated in (False, True):
                for tables, share, recall in ((self.predicate, 0.5, RECALL_PROPERTIES), (self.evaluation, 1.0, 0.0)):
                    if chosen := table(own, "word", share, negated, recall):
                        tables[kind, negated] = chosen
                has_degrees = [each for each in own if each.comparative or each.adverb or not lexicon.natural]
                if chosen := table(has_degrees, "word", 0.5, negated, RECALL_PROPERTIES):
                    self.graded[kind, negated] = chosen
            for by_kind, form in ((self.comparative, "comparative"), (self.adverb, "adverb")):
                having = [adjective for adjective in own if getattr(adjective, form)]
                if chosen := table(having, form, 0.25, recall=RECALL_PROPERTIES):
                    by_kind[kind] = chosen
        self.conjunction = self._table(["and", "but", "or"], [3, 1, 1])
        self.degree = self._table(["very", "quite", "too", "so"], [3, 2, 2, 1])

    def _make_verbal_tables(self) -> None:
        lexicon = self.lexicon
        weights = {frame: by_topic([verb.topic for verb in verbs]) for frame, verbs in lexicon.verbs.items()}

        def table(frames: Collection[str], tenses: dict[str, float]) -> Table:
            """Make a table of verbs with the given frames; `tenses` maps a verb form to its probability."""
            verbs = [verb for frame in frames for verb in lexicon.verbs[frame]]
            rows = np.concatenate([lexicon.frames[frame].weight * weights[frame] for frame in frames])
            words = [getattr(verb, form) for form in tenses for verb in verbs]
            return self._table(words, np.concatenate([share * rows for share in tenses.values()]), RECALL_VERBS)

        def finite(frames: Collection[str]) -> dict[tuple[str, str], Table]:
            """Make a table of finite verbs for each number and tense."""
            present = {"singular": "singular", "plural": "base"}
            return {
                (number, tense): table(frames, {"past": past, form: 1 - past})
                for number, form in present.items()
                for tense, past in self.past.items()
            }

        subjects, objects = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
        for name, frame in lexicon.frames.items():
            subjects[name] = lexicon.kinds(frame.subjects)
            # A place after the preposition "to" cannot be the subject of a passive or the head of an object relative
            # clause.
            bare = frame.complement not in (None, "clause") and not frame.preposition
            objects[name] = lexicon.kinds(frame.complement or "") if bare else ()
        able = {kind: [name for name in lexicon.frames if kind in subjects[name]] for kind in lexicon.nouns}
        affecting = {
            kind: [n for n, frame in lexicon.frames.items() if kind in objects[n] and frame.agent]
            for kind in lexicon.nouns
        }
        acting = {kind: [name for name in able["person"] if kind in objects[name]] for kind in lexicon.nouns}
        # The key of `verb`, `base` and `participle` is the kind of the subject. The key of `object_verb` and `passive`
        # is the kind of the object. The subject of `object_verb` is always a person.
        self.verb = {kind: finite(frames) for kind, frames in able.items()}
        self.base = {kind: table(frames, {"base": 1.0}) for kind, frames in able.items()}
        self.participle = {kind: table(frames, {"participle": 1.0}) for kind, frames in able.items()}
        self.object_verb = {kind: finite(frames) for kind, frames in acting.items() if frames}
        self.passive = {kind: table(frames, {"participle": 1.0}) for kind, frames in affecting.items() if frames}
        self.say = finite(["say"])
        self.auxiliary = {
            (name, number, tense): self._table(forms, [1 - past, past])
            for name, words in AUXILIARIES.items()
            for number, forms in (("singular", words[0::2]), ("plural", words[1::2]))
            for tense, past in self.past.items()
        }
        self.question = {
            tense: self._table(["does", "do", "did"], [0.6 * (1 - past), 0.4 * (1 - past), past])
            for tense, past in self.past.items()
        }
        self.occasion = self._table(["during", "after", "before"], [2, 2, 1])
        self.weekday = self._table(WEEKDAYS, np.ones(len(WEEKDAYS)))
        self.we = self._table(["i", "we"], [2, 1])
        judges = {"think": 4, "believe": 3, "found": 2, "felt": 1}
        present = {word: weight for word, weight in judges.items() if word not in PAST_JUDGES}
        usual, now = (self._table(list(each), list(each.values())) for each in (judges, present))
        is_strict = lexicon.natural
        self.judge = {tense: now if is_strict and not past else usual for tense, past in self.past.items()}

    def _make_nominal_branches(self) -> None:
        names = self.name.words
        # The key of `phrase`, `simple_phrase` and `modifier` consists of selection and number. A list in `modifier` has
        # one branch per number of earlier modifiers.
        self.phrase: dict[tuple[str, str], Branch] = {}
        self.simple_phrase: dict[tuple[str, str], Branch] = {}
        self.modifier: dict[tuple[str, str], list[Branch]] = {}
        for selection, number in self.noun:
            name_share = 0.35 if selection == "person" else 0.25
            is_person = "person" in self.lexicon.kinds(selection)
            named = {"name": (name_share, names)} if is_person and number != "plural" else {}
            both = {} if number == "singular" else {"both": (self.lexicon.both_share, ["both"])}
            plural = self.noun.get((selection, "plural"))
            bare = {} if number == "singular" or not plural else {"bare": (0.15, plural.words)}
            self.phrase[selection, number] = Branch("noun", **named, **bare, **both)
            self.simple_phrase[selection, number] = Branch("noun", **named, **bare)
            first, second = (self.attribute.get((selection, number, is_second)) for is_second in (False, True))
            adjective = {"adjective": (0.36, first.words)} if first else {}
            demonym = {"demonym": (0.05, self.demonym[number].words)} if number in self.demonym else {}
            self.modifier[selection, number] = [
                Branch("noun", **adjective, **demonym),
                Branch("noun", **({"adjective": (0.12, second.words)} if second else {})),
            ]
        # The list `bracketed` has one branch per nesting depth.
        self.bracketed = [Branch("no", yes=(share, BRACKETS)) for share in self.lexicon.bracketed_shares]
        self.owners = self.lexicon.kinds(self.lexicon.owners)
        self.bracketed_kinds = self.lexicon.kinds(self.lexicon.apposed)
        self.attached = {  # maps the kind of a noun to one branch per number of earlier attachments
            kind: [Branch("no", yes=(share, table.words)) for share in self.lexicon.attached_shares]
            for kind, table in self.preposition.items()
        }
        self.relative = [
            Branch("no", yes=(share, ["who", "which"])) for share in self.lexicon.relative_shares
        ]  # one branch per nesting depth of relative clauses
        determiners = self.determiner["person", "any", None].words
        persons = self.noun["person", "plural"].words
        self.relative_body = Branch("subject", object=(0.4, [*determiners, *persons, *names, "both"]))

    def _make_verbal_branches(self) -> None:
        shares = {"be": 0.16, "have": 0.13, "do": 0.08, "can": 0.05, "will": 0.06, "may": 0.03}
        auxiliaries = {name: (share, set(AUXILIARIES[name])) for name, share in shares.items()}
        self.predication = {}  # key: kind of the subject, and whether the clause is a condition
        for kind, is_condition in product(self.lexicon.nouns, (False, True)):
            absent = ("will", "may") if is_condition and self.lexicon.natural else ()
            options = {name: option for name, option in auxiliaries.items() if name not in absent}
            adverb = {"adverb": (0.17, self.adverb[kind].words)} if kind in self.adverb else {}
            self.predication[kind, is_condition] = Branch("finite", **adverb, **options)
        self.negation = Branch("no", yes=(0.22, ["not"]))
        self.property = {}  # key: kind of the subject
        for kind in self.lexicon.nouns:
            forms = {"degree": (0.25, self.degree.words)}
            if kind in self.comparative:
                forms["comparative"] = 0.3, self.comparative[kind].words
            if kind in self.passive:
                forms["passive"] = 0.25, self.passive[kind].words
            self.property[kind] = Branch("adjective", **forms)
        self.agent = Branch("no", yes=(0.6, ["by"]))
        self.reflexive = Branch("no", yes=(0.2, REFLEXIVES.values()))
        adjuncts = {"place": (0.14, ["in"]), "day": (0.08, ["on"]), "occasion": (0.08, ["during", "after", "before"])}
        self.adjunct = {}  # key: kind of the subject, and the opening of the sentence ("place", "day" or "")
        for kind, opening in product(self.lexicon.nouns, ("", *adjuncts)):
            excluded = {opening, "place" if kind in self.lexicon.kinds(self.lexicon.location) else ""}
            fitting = [name for name in adjuncts if not (self.lexicon.natural and name in excluded)]
            self.adjunct[kind, opening] = Branch("no", **{name: adjuncts[name] for name in fitting})
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
            # With this probability of an end after each sentence, all allowed document lengths are equally likely.
            end = 1 / (MAX_SENTENCES + 1 - n_before) if n_before >= MIN_SENTENCES else 0.0
            options = {name: ((1 - end) * share, words) for name, (share, words) in openings.items()}
            if antecedent:
                options["pronoun"] = (1 - end) * 0.25, [PRONOUNS[antecedent]]
            if n_before == MAX_SENTENCES:
                return Branch("end")
            return Branch("clause", end=(end, [LINE_END]), **options)

        self.sentence = {  # key: number of earlier sentences, and agreement class of the antecedent
            (n_before, antecedent): sentence(n_before, antecedent)
            for n_before in range(MAX_SENTENCES + 1)
            for antecedent in (None, *PRONOUNS)
        }
        self.time = self._table(["yesterday", "nowadays"], [1, 1])
        self.fact = Branch("apposition", definition=(0.4, ["is"]), fame=(0.3, ["has"]))
        self.opinions = [  # one branch per number of opinions so far, from 1
            Branch("end", comma=(0.5, [","]), last=(0.35, ["and"])),
            *[Branch("last", comma=(0.4, [","]))] * (MAX_OPINIONS - 3),
            Branch("last"),
        ]


def zipf(n: int) -> NDArray:
    """Return the weights of Zipf's law with Mandelbrot's shift, (n,), which do not sum to 1."""
    return 1 / (np.arange(n) + ZIPF_SHIFT)


def by_topic(topics: Sequence[int]) -> NDArray:
    """Return p(word | latent class), (words, latents), for words sorted by frequency, given each word's topic."""
    shares = np.zeros((len(topics), N_TOPICS))
    for topic in range(N_TOPICS):
        own = np.flatnonzero(np.asarray(topics) == topic)
        shares[own, topic] = zipf(len(own)) / zipf(len(own)).sum()
    mixed = HOME_SHARE * shares + (1 - HOME_SHARE) * shares.mean(axis=1, keepdims=True)
    return np.repeat(mixed, len(MOODS), axis=1)


def by_mood(polarities: Sequence[int]) -> NDArray:
    """Return p(word | latent class), (words, latents), for words sorted by frequency, given each word's polarity."""
    polarity = np.asarray(polarities)
    share = np.zeros(len(polarity))
    for sign in (-1, 1):
        own = np.flatnonzero(polarity == sign)
        share[own] = zipf(len(own)) / zipf(len(own)).sum()
    fits = polarity[:, None] == np.array([-1, 1])
    return np.tile(share[:, None] * np.where(fits, CONSISTENT_SHARE, 1 - CONSISTENT_SHARE), (1, N_TOPICS))
