"""Test the next-sentence task: wrong endings have the distribution that the judge assumes, and its answers are
optimal.
"""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from retable.grammar import Grammar, endings
from retable.grammar.endings import Example, GrammarEndings, starts_after_sentences
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.tables import LINE_END, N_LATENTS


@pytest.fixture(scope="module")
def language(grammar: Grammar) -> GrammarEndings:
    return GrammarEndings(grammar)


@pytest.fixture(scope="module")
def examples(language: GrammarEndings) -> list[Example]:
    return list(islice(language.examples(seed=3, split="test"), 200))


def tokens(sentences: list[str]) -> list[str]:
    return [token for sentence in sentences for token in (*sentence.split(" "), LINE_END)]


def test_an_example_is_the_beginning_of_a_document_and_four_sentences(grammar, language, examples):
    assert {len(each.beginning) for each in examples} == {1, 2, 3}
    assert {len(each.endings) for each in examples} == {4} and {each.label for each in examples} == {0, 1, 2, 3}
    for each in examples[:40]:
        document = tokens([*each.beginning, each.endings[each.label]])
        assert np.isfinite(grammar.score_tokens(document)).all()
    assert list(islice(language.examples(seed=3, split="test"), 20)) == examples[:20]
    other = [next(language.examples(*stream)).beginning for stream in ((3, "train"), (4, "test"))]
    assert examples[0].beginning not in other


def test_the_judge_is_as_good_as_it_says(language, examples):
    """Its accuracy and log-loss are what its own probabilities predict, so these are right."""
    log_posteriors = np.stack([language.log_posterior(each.beginning, each.endings) for each in examples])
    np.testing.assert_allclose(np.exp(log_posteriors).sum(axis=1), 1)
    labels = np.array([each.label for each in examples])
    best, posterior = log_posteriors.argmax(axis=1), np.exp(log_posteriors)
    expected = posterior.max(axis=1)
    error = np.sqrt((expected * (1 - expected)).sum()) / len(labels)
    assert 0.87 < (best == labels).mean() < 0.99
    assert abs((best == labels).mean() - expected.mean()) < 3 * error
    logs = np.log(posterior, out=np.zeros_like(posterior), where=posterior > 0)
    surprise, entropy = -log_posteriors[range(len(labels)), labels], -(posterior * logs).sum(axis=1)
    assert abs(surprise.mean() - entropy.mean()) < 3 * (surprise - entropy).std() / np.sqrt(len(labels))
    assert language.judge(examples[0].beginning, examples[0].endings) == best[0]


def test_wrong_endings_are_as_likely_as_the_judge_takes_them_to_be(grammar, monkeypatch):
    """The most frequent drawn endings are compared with their probabilities."""
    monkeypatch.setattr(endings, "START_DOCUMENTS", 50)
    language = GrammarEndings(grammar)
    uniform, n = endings.uniforms(1, "wrong", 0), 8000
    counts = Counter(language._wrong(uniform, 2) for _ in range(n))
    for sentence, times in counts.most_common(3):
        expected = n * np.exp(language._log_wrong(sentence, 2))
        assert abs(times - expected) < 4 * np.sqrt(expected), sentence


def test_the_posterior_by_enumeration(grammar, monkeypatch):
    monkeypatch.setattr(endings, "START_DOCUMENTS", 2)
    language = GrammarEndings(grammar)
    given = next(
        each for each in language.examples(1, "test") if any(e.split()[0] in PRONOUNS.values() for e in each.endings)
    )
    n_before = len(given.beginning)
    starts = starts_after_sentences(grammar)[n_before]

    def told(sentences, start):
        def part(discourse):
            discourse.antecedent, discourse.tense = start
            for _ in sentences:
                discourse.sentence()

        return np.exp(grammar.log_joint(tokens(sentences), part)) * N_LATENTS  # joint with each latent class

    wrong = [sum(told([ending], start).mean() for start in starts) / len(starts) for ending in given.endings]
    joint = []
    for place, ending in enumerate(given.endings):
        right = told([*given.beginning, ending], (None, "open")).mean()
        joint.append(right * np.prod(np.delete(wrong, place)))
    found = language.log_posterior(given.beginning, given.endings)
    np.testing.assert_allclose(np.exp(found), np.array(joint) / sum(joint), rtol=1e-9)


def test_what_cannot_be_wrong_is_right(grammar, monkeypatch):
    monkeypatch.setattr(endings, "starts_after_sentences", lambda grammar: {1: [(None, "past")]})
    noun, rest = grammar.lexicon.nouns["person"][0], grammar.lexicon.verbs["rest"][0]
    end = f"{rest.past} {rest.particle or ''}".strip() + " ."
    sentences = [f"the {noun.singular} {end}", f"he {end}"]
    assert GrammarEndings(grammar).log_posterior(sentences[:1], sentences).tolist() == [-np.inf, 0.0]
