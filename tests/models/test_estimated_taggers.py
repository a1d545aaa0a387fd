"""Test taggers by rules, counts and maximum entropy against NLTK, whose book publishes their scores."""

import json
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from safetensors.numpy import load_file

from retable.core.errors import UsageError
from retable.models.estimated_taggers import FEATURES, CountedTagger, LogLinearTagger, PatternTagger, split_word

nltk = pytest.importorskip("nltk")


@pytest.fixture(scope="module")
def sentences():
    """Draw sentences of words with parts of speech; tags depend on both, and on chance."""
    rng = np.random.default_rng(1)
    rows, tags = [], []
    for length in rng.integers(1, 9, size=60):
        words = [f"{'ab'[word]}/{('DT', 'NN', 'IN')[part]}" for word, part in rng.integers((2, 3), size=(length, 2))]
        rows.append(words)
        tags.append(
            [
                ("O", "B-NP", "I-NP")[(len(word) + int(draw)) % 3]
                for word, draw in zip(words, rng.integers(3, size=length), strict=True)
            ]
        )
    return rows, tags


@pytest.mark.parametrize(("order", "peer"), [(1, "UnigramTagger"), (2, "BigramTagger")])
def test_counted_tags_are_nltks(order, peer, sentences, tmp_path):
    rows, tags = sentences
    model = CountedTagger(order)
    model.estimate(rows[:20], tags[:20])
    parts = [[split_word(word)[1] for word in words] for words in rows]
    other = getattr(nltk, peer)([list(zip(*pair, strict=True)) for pair in zip(parts[:20], tags[:20], strict=True)])
    assert model.label(rows) == [[tag or "O" for _, tag in other.tag(row)] for row in parts]
    model.save(tmp_path / "model")
    again = CountedTagger(order)
    again.load(tmp_path / "model")
    assert again.table == model.table


def test_a_pattern_chunks_as_nltks_grammar(sentences, tmp_path):
    parser = nltk.RegexpParser("NP: {<[DN].*>+}")
    trees = [parser.parse([split_word(word) for word in words]) for words in sentences[0]]
    expected = [[tag for *_, tag in nltk.chunk.tree2conlltags(tree)] for tree in trees]
    model = PatternTagger("[DN].*", "NP")
    assert model.label(sentences[0]) == expected
    model.save(tmp_path / "model")
    assert json.loads(load_file(tmp_path / "model")["pattern"].tobytes()) == "[DN].*"
    assert PatternTagger("", "NP").label([["a/NN", "b"]]) == [["O", "O"]]
    with pytest.raises(UsageError, match="regular expression"):
        PatternTagger("[", "NP")


def test_a_maximum_entropy_model_expects_the_counts_of_its_features(sentences, tmp_path):
    """The gradient is zero: for each feature and tag, the sum of p(tag) over words with the feature equals the
    count.
    """
    rows, tags = sentences
    names = ["pos", "previous_pos", "word"]
    model = LogLinearTagger(names, steps=500)
    model.estimate(rows, tags)
    weights = {
        name: dict(zip(model.classes, row, strict=True)) for name, row in zip(model.names, model.weights, strict=True)
    }
    counts, expected = Counter(), defaultdict(float)
    for words, row in zip(rows, tags, strict=True):
        plain, parts = zip(*map(split_word, words), strict=True)
        for i, tag in enumerate(row):
            features = [f"{name} {FEATURES[name](plain, parts, i)}" for name in names]
            sizes = {each: math.exp(sum(weights[name][each] for name in features)) for each in model.classes}
            for name in features:
                counts[name, tag] += 1
                for each, size in sizes.items():
                    expected[name, each] += size / sum(sizes.values())
    assert {pair: pytest.approx(number, abs=0.02) for pair, number in counts.items()} == {
        pair: expected[pair] for pair in counts
    }
    model.save(tmp_path / "model")
    again = LogLinearTagger(names)
    again.load(tmp_path / "model")
    assert again.label(rows) == model.label(rows)
    with pytest.raises(UsageError, match=r"'pso' in model.features; write pos"):
        LogLinearTagger(["pso"])


def test_one_step_of_maximum_entropy_follows_the_gradient():
    """With weights of 0, all tags are equally likely: the gradient is the count minus half of the words.

    A tag that the word does not have in training keeps the weight 0.
    """
    model = LogLinearTagger(["word"], steps=1)
    model.estimate([["a", "b", "a"], ["a"]], [["O", "B-NP", "O"], ["B-NP"]])
    assert (model.names, model.classes) == (["word a", "word b"], ["B-NP", "O"])
    step = model.weights[0, 1]
    assert step > 0
    np.testing.assert_allclose(model.weights / step, [[-1, 1], [1, 0]], rtol=1e-12)


def test_features_of_a_word_are_those_of_the_book():
    """Features of NLTK's book, chapter 7: `npchunk_features` and `tags_since_dt`."""
    plain, parts = ["he", "saw", "the", "big", "dog"], ["PRP", "VBD", "DT", "JJ", "NN"]
    of_dog = {name: feature(plain, parts, 4) for name, feature in FEATURES.items()}
    assert of_dog == {
        "pos": "NN", "previous_pos": "JJ", "word": "dog", "next_pos": "<END>", "previous_pair": "JJ+NN",
        "next_pair": "NN+<END>", "since_determiner": "JJ",
    }  # fmt: skip
    assert [FEATURES["since_determiner"](plain, parts, i) for i in (0, 2, 3)] == ["", "PRP+VBD", ""]
