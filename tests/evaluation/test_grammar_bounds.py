import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.evaluation.grammar_bounds import MaskedBound, SentencePairsBound, corrupted_entropy, entropy, sentences_of
from retable.evaluation.grammar_words import spans, words_of
from retable.grammar.masked import MaskedWords
from retable.grammar.sentence_pairs import SentencePairs
from retable.tokenizers import character, word


@pytest.fixture(scope="module")
def folder(tokens_of):
    return tokens_of("[PAD]", "[CLS]", "[SEP]", "[MASK]")


def test_the_entropy_under_corruption_by_enumeration():
    """All pairs of a word and its replacement: a mask, or one of five words."""
    words, posterior = "abcde", {"a": 0.7, "b": 0.2, "d": 0.1}
    joint = {(w, "[MASK]"): 0.8 * posterior.get(w, 0) for w in words}
    joint |= {(w, seen): posterior.get(w, 0) * (0.1 * (w == seen) + 0.1 / 5) for w in words for seen in words}
    assert sum(joint.values()) == pytest.approx(1)
    seen = {s: sum(p for (_, other), p in joint.items() if other == s) for s in ["[MASK]", *words]}
    expected = -sum(p * np.log(p / seen[s]) for (_, s), p in joint.items() if p)
    assert corrupted_entropy(posterior, 5) == pytest.approx(expected, rel=1e-12)
    assert entropy(posterior) == pytest.approx(-sum(p * np.log(p) for p in posterior.values()))
    assert corrupted_entropy({"a": 1.0}, 5) == pytest.approx(0, abs=1e-12)


def test_the_bound_of_masked_words(grammar, folder, tmp_path):
    language = MaskedWords(grammar)
    metrics = MaskedBound(str(folder), language, words=20, documents=2, sweeps=2)(None, tmp_path)
    names = {"masked/alone", "masked/alone_corrupted", "masked/accuracy", "masked/corrupted"}
    assert metrics.keys() == names | {f"{name}_standard_error" for name in names}
    table = pd.read_csv(tmp_path / "masked_words.csv")
    assert len(table) == 20 and metrics["masked/alone"] == pytest.approx(table["entropy"].mean(), abs=1e-6)
    error = metrics["masked/alone_standard_error"]
    assert error == pytest.approx(table["entropy"].sem(), rel=1e-4)
    assert abs(table["nats"].mean() - metrics["masked/alone"]) < 4 * (table["nats"] - table["entropy"]).sem()
    assert 0.75 * metrics["masked/alone"] < metrics["masked/alone_corrupted"] < metrics["masked/alone"]
    assert metrics["masked/corrupted"] > metrics["masked/alone_corrupted"] - error  # the means are over different words


class Certain:
    """A language in which the other words determine every word except determiners; each further hidden word costs
    one nat.
    """

    def posterior(self, tokens, place):
        return {"the": 0.5, "a": 0.5} if tokens[place] in ("the", "a") else {tokens[place]: 1.0}

    def posteriors(self, tokens, hidden, sweeps, uniform):
        return [{**dict.fromkeys("abc", 0.25), tokens[place]: 0.25} for place in hidden]


def test_the_bounds_are_means_over_words(folder, tmp_path):
    metrics = MaskedBound(str(folder), Certain(), words=200, documents=30)(None, tmp_path)
    table = pd.read_csv(tmp_path / "masked_words.csv")
    share = table["word"].isin(["the", "a"]).mean()
    assert 0.02 < share < 0.3
    assert metrics["masked/alone"] == pytest.approx(share * np.log(2), rel=1e-5)
    assert metrics["masked/accuracy"] == pytest.approx(1 - share / 2)
    everywhere = corrupted_entropy(dict.fromkeys("abcd", 0.25), 600)
    assert metrics["masked/corrupted"] == pytest.approx(everywhere, abs=0.1)


def test_the_judge_reads_the_very_sentences(grammar, folder, tmp_path, told):
    metrics = SentencePairsBound(str(folder), SentencePairs(grammar), length=64, pairs=24)(None, tmp_path)
    assert metrics["next_sentence/accuracy"] > 0.7 and metrics["sentence_order/accuracy"] > 0.5
    accuracy = metrics["next_sentence/accuracy"]
    assert metrics["next_sentence/accuracy_standard_error"] == pytest.approx(np.sqrt(accuracy * (1 - accuracy) / 24))
    # All sentences fit into a row of 256, so a reader who searches the documents is always right.
    reader = Reader(told)
    metrics = SentencePairsBound(str(folder), reader, length=256, pairs=24)(None, tmp_path)
    assert metrics["next_sentence/accuracy"] == metrics["sentence_order/accuracy"] == 1
    assert sentences_of(["a", "dog", "barks", ".", "did", "it", "?", "then", "the"]) == ["a dog barks .", "did it ?"]


class Reader:
    """A judge that records the questions, and answers yes if the two pieces follow each other in one of the
    documents.
    """

    def __init__(self, documents):
        self.texts = [" ".join(document) for document in documents]

    def log_odds_next(self, first, second):
        assert first and second
        return 1.0 if any(" ".join([*first, *second]) in text for text in self.texts) else -1.0

    log_odds_order = log_odds_next


def test_small_splits_and_unmarked_tokens_are_refused(grammar, folder, tmp_path):
    few = " gives no standard error"
    for name, n, told in (("documents", 1, few), ("words", 1, few), ("words", 100000, "")):
        with pytest.raises(UsageError, match=f"{name}={n}{told}"):
            MaskedBound(str(folder), MaskedWords(grammar), **{name: n})(None, tmp_path)
    word.train([], vocabulary=grammar.vocabulary).save(tmp_path / "tokenizer.json")
    for name in ("test.bin", "test.units.npy"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(UsageError, match="word_marked"):
        SentencePairsBound(str(tmp_path), SentencePairs(grammar), length=64)(None, tmp_path)


def test_units_and_line_ends_are_the_grammars():
    units = np.array([[3, 2, 9], [0, 0, 0], [2, 1, 4]])
    assert [list(range(5))[span] for span in spans(units)] == [[0, 1, 2], [], [3, 4]]
    tokenizer = word.train(["the cat", "sat"])
    words = words_of(tokenizer)
    assert words[tokenizer.boundary] == "\n"
    assert [words[token] for token in tokenizer.encode("the cat\nsat\n")] == ["the", "cat", "\n", "sat", "\n"]
    with pytest.raises(UsageError, match="tokenizer=word"):
        words_of(character.train(["the cat"]))
