"""Test the built-in language: the scorer is a proper distribution, and equals that of the sampler."""

import hashlib
from itertools import islice

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Branch
from retable.grammar.invented import Coiner, Invented
from retable.grammar.language import tokens_of, uniforms
from retable.grammar.tables import LINE_END, N_LATENTS


@pytest.fixture(scope="module")
def grammar(whole) -> Grammar:
    return whole


def test_every_sampled_document_is_in_the_language_and_its_scores_add_up(grammar: Grammar):
    for document in islice(grammar.documents(seed=1, split="train"), 200):
        scores = grammar.score(document)
        assert len(scores) == sum(len(sentence.split()) + 1 for sentence in document) + 1
        assert np.all(scores <= 1e-9) and np.isfinite(scores).all()
        assert scores.sum() == pytest.approx(grammar.log_probability(document), rel=1e-12)
        assert 3 <= len(document) <= 12


def test_the_next_token_probabilities_sum_to_one(small: Grammar):
    candidates = [*small.vocabulary, LINE_END]
    pick = uniforms(2, "prefixes", 0)
    for document in islice(small.documents(seed=2, split="prefixes"), 4):
        tokens = tokens_of(document)
        prefix = tokens[: int(pick() * min(len(tokens), 45))]
        total = sum(np.exp(small.score_tokens([*prefix, token])[-1]) for token in candidates)
        assert total == pytest.approx(1, abs=1e-9), prefix


def test_the_scorer_predicts_the_sampler(small: Grammar):
    """First words of sampled documents are compared with the scorer's probabilities by Pearson's chi-squared."""
    n = 4000
    counts: dict[str, int] = {}
    for index in range(n):
        uniform = uniforms(5, "first words", index)
        first = small.sample(uniform, int(uniform() * N_LATENTS), Discourse.sentence)[0]
        counts[first] = counts.get(first, 0) + 1
    expected = {word: n * np.exp(small.score_tokens([word])[0]) for word in small.vocabulary}
    assert set(counts) <= {word for word, value in expected.items() if value > 0}
    common = [word for word, value in expected.items() if value >= 5]
    statistic = sum((counts.get(word, 0) - expected[word]) ** 2 / expected[word] for word in common)
    assert len(common) > 20
    assert statistic < len(common) + 4 * np.sqrt(2 * len(common))  # 4 standard deviations


def test_the_likelihood_is_the_mean_over_the_latent_classes(grammar: Grammar):
    for document in islice(grammar.documents(seed=3, split="test"), 20):
        tokens = tokens_of(document)
        joint = grammar.log_joint(tokens)
        by_hand = np.log(np.mean(np.exp(joint + np.log(N_LATENTS) - joint.max()))) + joint.max()
        assert grammar.log_probability(document) == pytest.approx(by_hand, rel=1e-12)
        # The chain rule holds for prefixes too: a later word cannot change an earlier score.
        half = len(tokens) // 2
        np.testing.assert_allclose(grammar.score_tokens(tokens[:half]), grammar.score(document)[:half], atol=1e-9)


DOCUMENTS = {
    "invented": "3c0776f5f250532e96ca06408cdd81e2f18b800ad68a9416316f2b2552926406",
    "english": "3860201e15764b0e394ee03dc469f63d3c3208acd8fc9e533f1f106880aac46c",
}


def test_a_document_is_a_function_of_seed_split_and_index(grammar: Grammar, lexicon_name: str):
    def digest(seed: int, split: str) -> str:
        documents = islice(grammar.documents(seed, split), 50)
        return hashlib.sha256("\n".join("\n".join(document) for document in documents).encode()).hexdigest()

    assert digest(1, "train") == DOCUMENTS[lexicon_name]
    assert len({digest(1, "train"), digest(1, "test"), digest(2, "train")}) == 3


def test_from_the_first_impossible_token_on_scores_are_minus_infinity(grammar: Grammar):
    document = next(grammar.documents(seed=1, split="train"))
    words = document[0].split()
    broken = [" ".join([*words[:3], "nonsense", *words[3:]]), *document[1:]]
    scores = grammar.score(broken)
    assert np.isfinite(scores[:3]).all() and np.isneginf(scores[3:]).all()
    assert grammar.log_probability(broken) == -np.inf
    assert grammar.log_probability(document[:1]) == -np.inf  # a document has at least three sentences
    assert grammar.log_probability([*document, ""]) == -np.inf


@pytest.mark.parametrize(("good", "bad"), [
    ("the {n} near many {places} {v} .", "the {n} near many {places} {vp} ."),
    ("a {p} is not very {a} .", "a {ps} is not very {a} ."),
    ("{name} {greet} {self} .", "{name} {greet} {other} ."),
    ("the {p} ( a {p} [ a {p} ] ) {v} .", "the {p} ( a {p} [ a {p} ) ] {v} ."),
    ("did the {p} {vp} ?", "did the {p} {vp} ."),
    ("yesterday , the {p} {past} .", "yesterday , the {p} {v} ."),
    ("{capital} is the capital of {country} .", "{capital} is the capital of {abroad} ."),
    ("as for {name} , the {p} {say} that {name} {past} .", "as for {name} , the {p} {say} that {man} {past} ."),
])  # fmt: skip
def test_rules(grammar: Grammar, good: str, bad: str):
    lexicon = grammar.lexicon
    person, verb = lexicon.nouns["person"][0], next(v for v in lexicon.verbs["rest"] if not v.particle)
    frame = next(name for name, frame in lexicon.frames.items() if frame.reflexive)
    greet = next(v for v in lexicon.verbs[frame] if not v.particle)
    man, woman = lexicon.names[0], lexicon.names[1]
    assert (man.gender, woman.gender) == ("masculine", "feminine")
    words = {
        "n": person.singular, "places": lexicon.nouns["place"][0].plural,
        "p": person.singular, "ps": person.plural, "v": verb.singular, "vp": verb.base,
        "past": verb.past, "greet": greet.past, "say": lexicon.verbs["say"][0].past, "name": woman.word,
        "man": man.word, "self": "herself", "other": "himself", "a": lexicon.adjectives[0].word,
        "country": lexicon.nations[0].country, "capital": lexicon.nations[0].capital,
        "abroad": lexicon.nations[1].country,
    }  # fmt: skip

    def possible(sentence: str) -> bool:
        return bool(np.isfinite(grammar.score_tokens([*sentence.format(**words).split(), LINE_END])).all())

    assert possible(good) and not possible(bad)


def test_what_decides_each_word(grammar: Grammar):
    """A document by hand: A agreement, N nesting, R repetition, and nothing for words that do not depend on others."""
    lexicon = grammar.lexicon
    (person, other), thing = lexicon.nouns["person"][:2], lexicon.nouns["thing"][0]
    rest, say = next(v for v in lexicon.verbs["rest"] if not v.particle), lexicon.verbs["say"][0]
    handle = next(v for v in lexicon.verbs["handle"] if not v.particle)
    frame = next(name for name, frame in lexicon.frames.items() if frame.reflexive)
    greet = next(v for v in lexicon.verbs[frame] if not v.particle)
    (man, topic), nation = lexicon.names[:2], lexicon.nations[0]
    assert (person.gender, other.gender, man.gender) == ("masculine", "feminine", "masculine")
    sentences = [
        f"the {person.singular} ( a {other.singular} )/N who/A {greet.past}/A himself/A {handle.past}/A his/A "
        f"{thing.singular} .",
        f"he/A was/A not {greet.participle} in {nation.capital} .",
        f"if both {man.word} and/N the {other.plural}/R {rest.past}/A ,/N then/N these {thing.plural}/R "
        f"had/A not {next(v for v in lexicon.verbs['fade'] if not v.particle).participle} .",
        f"did/A {man.word}/R {rest.base} on monday ?/N",
        f"in {nation.capital}/R ,/N a {person.singular}/R {rest.past}/A .",
        f"as for {topic.word} , {man.word}/R {say.past}/A that {topic.word}/R would/A {rest.base} .",
    ]
    marked = [word for sentence in sentences for word in [*sentence.split(), LINE_END]]
    tokens = [word.partition("/")[0] for word in marked]
    scores, phenomena = grammar.read(tokens)
    assert np.isfinite(scores).all()
    letters = {"local": "", "agreement": "/A", "nesting": "/N", "repetition": "/R"}
    assert [f"{token}{letters[name]}" for token, name in zip(tokens, phenomena, strict=True)] == marked


def test_no_two_lexemes_share_a_form(whole: Grammar, lexicon_name: str):
    lexicon = whole.lexicon
    forms = [
        *(form for nouns in lexicon.nouns.values() for noun in nouns for form in noun.forms),
        *(form for verbs in lexicon.verbs.values() for verb in verbs for form in verb.forms),
        *(form for adjective in lexicon.adjectives for form in adjective.forms), *(name.word for name in lexicon.names),
        *(word for nation in lexicon.nations for word in nation), *lexicon.function_words(),
    ]  # fmt: skip
    assert len(set(forms)) == len(forms)
    assert all(form.islower() or not form.isalpha() for form in forms)
    assert (2500 if lexicon_name == "invented" else 2000) <= len(forms) <= 3200


@pytest.mark.parametrize("scale", [50.1, 1e9, float("inf"), float("nan"), 0, -1])
def test_a_lexicon_that_would_not_end_is_refused(scale):
    with pytest.raises(UsageError, match=r"scale=\S+ is out of range; write a number above 0 and at most 50"):
        Invented(scale)


def test_a_coiner_ends_when_its_words_are_at_an_end():
    coiner = Coiner(seed=1, taken=[])
    coiner.ONSETS, coiner.CODAS = ("b",), ("d",)
    words = set()
    with pytest.raises(UsageError, match=r"8 words is the maximum that can be invented; write a smaller scale="):
        while True:
            word = coiner.stem(1)
            if coiner.is_new((word,)):
                words.add(word)
    assert words == {f"b{vowel}d" for vowel in coiner.VOWELS}


def test_the_vocabulary_is_closed_and_used(grammar: Grammar):
    documents = islice(grammar.documents(1, "train"), 600)
    seen = {word for document in documents for sentence in document for word in sentence.split()}
    assert seen <= set(grammar.vocabulary)
    assert len(seen) > 0.9 * len(grammar.vocabulary)
    assert grammar.lexicon.function_words() <= seen
    assert grammar.vocabulary == sorted(set(grammar.vocabulary))


def test_a_branch_needs_options_that_differ_in_their_first_word():
    with pytest.raises(ValueError, match="overlap"):
        Branch("rest", one=(0.5, ["a", "b"]), two=(0.25, ["b"]))
