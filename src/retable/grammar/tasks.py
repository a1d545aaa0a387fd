"""Two labelled tasks on sentences of the embedded language, in the form of GLUE's CoLA and SST-2.

The language's scorer decides acceptability without error and computes the posterior of the sentiment. This module
therefore also contains the Bayes-optimal predictor of each task. Example i of a stream depends only on (seed, split,
i).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from retable.grammar.discourse import Discourse
from retable.grammar.language import Grammar, Uniform, uniforms
from retable.grammar.lexicon import BRACKETS, POSSESSIVES, REFLEXIVES, SINGULARS, Lexicon
from retable.grammar.tables import AUXILIARIES, LINE_END, MOODS, N_LATENTS, N_TOPICS

ACCEPTABILITY = ("unacceptable", "acceptable")
MIN_OPINIONS = 3  # minimum number of opinions per sentence of the sentiment task; the mood does not affect this number
ATTEMPTS = 4  # maximum number of places at which a kind of violation is tried, before the next kind

Substitutes = Mapping[str, Sequence[str]]


def acceptability(grammar: Grammar, seed: int, split: str) -> Iterator[tuple[str, str]]:
    """Yield an endless series of pairs (sentence, "acceptable" or "unacceptable"), with equally likely labels.

    An unacceptable sentence is an acceptable sentence with one violation of a randomly drawn kind (see `violations`).
    The scorer has checked that no document can begin with the unacceptable sentence.
    """
    kinds = violations(grammar.lexicon)
    for index in count():
        uniform = uniforms(seed, f"acceptability/{split}", index)
        latent, label = int(uniform() * N_LATENTS), ACCEPTABILITY[int(uniform() * 2)]
        sentence = " ".join(grammar.sample(uniform, latent, Discourse.sentence)[:-1])
        yield (sentence if label == "acceptable" else violate(grammar, sentence, kinds, uniform)), label


def judge_acceptability(grammar: Grammar, sentence: str) -> str:
    """Return the exact label: "acceptable" if and only if the sentence is in the language."""
    log_joint = grammar.log_joint([*sentence.split(" "), LINE_END], Discourse.sentence)
    return ACCEPTABILITY[bool(np.isfinite(log_joint).any())]


def sentiment(grammar: Grammar, seed: int, split: str) -> Iterator[tuple[str, str]]:
    """Yield an endless series of pairs (sentence, "negative" or "positive").

    A sentence has several opinions, which are drawn with the mood that its label names.
    """
    for index in count():
        uniform = uniforms(seed, f"sentiment/{split}", index)
        mood = int(uniform() * len(MOODS))
        latent = int(uniform() * N_TOPICS) * len(MOODS) + mood
        words: list[str] = []
        while n_opinions(words) < MIN_OPINIONS:
            words = grammar.sample(uniform, latent, Discourse.opinion_sentence)
        yield " ".join(words), MOODS[mood]


def sentiment_posterior(grammar: Grammar, sentence: str) -> NDArray:
    """Return (log p(negative | sentence), log p(positive | sentence)), (2,), in nats."""
    log_joint = grammar.log_joint(sentence.split(" "), Discourse.opinion_sentence)
    return log_softmax(logsumexp(log_joint.reshape(N_TOPICS, len(MOODS)), axis=0))


def judge_sentiment(grammar: Grammar, sentence: str) -> str:
    """Return the Bayes-optimal label, "negative" or "positive"."""
    return MOODS[int(np.argmax(sentiment_posterior(grammar, sentence)))]


def violate(grammar: Grammar, sentence: str, kinds: Mapping[str, Substitutes], uniform: Uniform) -> str:
    """Change `sentence` in one place so that it is outside the language."""
    words = sentence.split(" ")
    while True:
        for kind in shuffled([*kinds, "order"], uniform):
            substitutes = kinds.get(kind, {})
            places = [i for i, word in enumerate(words[:-1]) if kind == "order" or word in substitutes]
            for i in shuffled(places, uniform)[:ATTEMPTS]:
                if kind == "order":
                    changed = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
                else:
                    options = substitutes[words[i]]
                    changed = [*words[:i], options[int(uniform() * len(options))], *words[i + 1 :]]
                if judge_acceptability(grammar, " ".join(changed)) == "unacceptable":
                    return " ".join(changed)


def violations(lexicon: Lexicon) -> dict[str, Substitutes]:
    """Return, for each kind of violation, the words that are replaced and the substitutes of each word.

    The substitutes of each kind are:

    agreement: the same verb or auxiliary in the other number.
    determiner: a determiner of the other number.
    number: the same noun in the other number.
    selection: a noun of another kind, with the same topic and number.
    form: a past form for a participle, or a participle for a past form.
    gender: another possessive or reflexive.
    bracket: a closing bracket of another kind.
    reference: another name, country, capital or demonym.
    """
    verbs = [verb for verbs in lexicon.verbs.values() for verb in verbs]
    agreement: list[Sequence[str]] = [(verb.base, verb.singular) for verb in verbs]
    agreement += [forms[i : i + 2] for forms in AUXILIARIES.values() for i in (0, 2) if forms[i] != forms[i + 1]]
    nouns = [noun for nouns in lexicon.nouns.values() for noun in nouns]
    kin: dict[tuple[int, bool], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for noun in nouns:
        for plural, form in enumerate(noun.forms):
            kin[noun.topic, bool(plural)][noun.kind].append(form)
    selection = {
        word: [other for kind, others in kinds.items() if kind != own for other in others]
        for kinds in kin.values()
        for own, words in kinds.items()
        for word in words
    }
    by_number = {
        "singular": [word for word, number in lexicon.determiners.items() if number in SINGULARS],
        "plural": [word for word, number in lexicon.determiners.items() if number == "plural"],
    }
    names = [[name.word for name in lexicon.names], *zip(*lexicon.nations, strict=True)]
    return {
        "agreement": alternatives(agreement),
        "determiner": {
            word: by_number["plural" if number == "singular" else "singular"]
            for number, words in by_number.items()
            for word in words
        },
        "number": alternatives([noun.forms for noun in nouns]),
        "selection": selection,
        "form": alternatives([(verb.participle, verb.past) for verb in verbs]),
        "gender": alternatives([tuple(POSSESSIVES.values()), tuple(REFLEXIVES.values())]),
        "bracket": alternatives([tuple(BRACKETS.values())]),
        "reference": alternatives(names),
    }


def alternatives(sets: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Map each word to the other words of its set. A set with only one distinct word is left out."""
    return {word: [other for other in words if other != word] for words in sets if len({*words}) > 1 for word in words}


def n_opinions(words: Sequence[str]) -> int:
    """Count the opinions in a sentence by its forms of "be", because each opinion contains one such form."""
    return sum(word in AUXILIARIES["be"] for word in words)


def shuffled(items: Sequence, uniform: Uniform) -> list:
    return [items[i] for _, i in sorted((uniform(), i) for i in range(len(items)))]
