"""Analogy questions over the embedded lexicon, with the section names of word2vec's questions-words.txt."""

from itertools import chain, permutations, zip_longest

from retable.grammar.lexicon import Lexicon

MAX_PAIRS = 20  # word pairs per section, which form 20 × 19 = 380 questions

Question = tuple[str, str, str, str]


def analogies(lexicon: Lexicon) -> dict[str, list[Question]]:
    """Return the analogy questions of each section, for the most frequent lexemes.

    A question (a, b, c, d) means "a is to b as c is to d". All word pairs of a section have the same relation. Each
    pair is combined with every other pair, as in Mikolov et al. 2013, "Efficient Estimation of Word Representations in
    Vector Space", section 4.1. Irregular forms are included.
    """
    nouns, verbs = in_turn(lexicon.nouns), in_turn(lexicon.verbs)
    pairs = {
        "capital-world": [(nation.capital, nation.country) for nation in lexicon.nations],
        "family": [
            (family[0].singular, family[1].singular) for family in lexicon.families["person"] if len(family) == 2
        ],
        "gram1-adjective-to-adverb": [(each.word, each.adverb) for each in lexicon.adjectives if each.adverb],
        "gram3-comparative": [(each.word, each.comparative) for each in lexicon.adjectives if each.comparative],
        "gram6-nationality-adjective": [(nation.country, nation.demonym) for nation in lexicon.nations],
        "gram7-past-tense": [(verb.base, verb.past) for verb in verbs],
        "gram8-plural": [(noun.singular, noun.plural) for noun in nouns if noun.plural],
        "gram9-plural-verbs": [(verb.base, verb.singular) for verb in verbs],
    }
    return {
        section: [(*first, *second) for first, second in permutations(members[:MAX_PAIRS], 2)]
        for section, members in pairs.items()
    }


def in_turn(classes: dict[str, list]) -> list:
    """Interleave the lexemes of all classes: first each class's most frequent lexeme, then each class's second."""
    return [lexeme for lexeme in chain.from_iterable(zip_longest(*classes.values())) if lexeme is not None]
