from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from retable.evaluation.last_words import LastWords
from retable.models.ngram import KneserNey
from retable.tokenizers import byte_bpe, word
from tests.evaluation.given import Given


class Passages:
    def __init__(self, *passages):
        self.inputs, self.passages = [Path("passages")], passages

    def read(self):
        return self.passages


def test_accuracy_and_perplexity_by_hand(tmp_path):
    word.train(["a a b"]).save(tmp_path / "tokenizer.json")
    passages = Passages(("a b a", "b"), ("b a", "a"), ("a b", "wug"))  # right; wrong; the right word is unknown
    metrics = LastWords(str(tmp_path), passages)(Given(), tmp_path)
    expected = {"accuracy": 1 / 3, "perplexity": (0.5 * 0.3 * 0.6) ** (-1 / 3), "questions": 3, "unknown": 1 / 3}
    assert metrics == pytest.approx({f"prompted_lambada/test/{name}": value for name, value in expected.items()})
    units = pd.read_csv(tmp_path / "units.csv")
    assert LastWords.sums(units, "perplexity").compared is np.log
    assert units.to_numpy().tolist() == [
        ["test", 0, "b", "b", 0.693147, 0], ["test", 1, "a", "b", 1.203973, 0], ["test", 2, "wug", "<unk>", 0.510826, 1]
    ]  # fmt: skip


def test_words_of_several_tokens(tmp_path):
    """Each token of the word must be the most likely one after those before it; the nats are the sum over all of
    them.
    """
    text = "the cat sat on the mat with a hat and the mat had a cat on it"
    tokenizer = byte_bpe.train([text] * 3, 262)
    tokenizer.save(tmp_path / "tokenizer.json")
    model = KneserNey(tokenizer.vocab_size, 4, tokenizer.boundary)
    model.estimate(np.array(tokenizer.encode(text)))
    contexts, words = ["the cat sat on the", "with a", "a cat on"], ["cat", "hat", "mat", "sat", "it", "h"]
    passages = [(context, word) for context in contexts for word in words]
    expected, nats = [], []
    for context, last in passages:
        begun, target = tokenizer.encode(context), tokenizer.encode(f" {last}")
        assert begun + target == tokenizer.encode(f"{context} {last}")
        after = [model.next_log_prob(np.array(begun + target[:n])) for n in range(len(target))]
        expected.append(all(each.argmax() == token for each, token in zip(after, target, strict=True)))
        nats.append(-sum(each[token] for each, token in zip(after, target, strict=True)))
    metrics = LastWords(str(tmp_path), Passages(*passages))(model, tmp_path)
    assert metrics["prompted_lambada/test/accuracy"] == np.mean(expected)
    assert metrics["prompted_lambada/test/perplexity"] == pytest.approx(np.exp(np.mean(nats)))
    right = [passage for passage, hit in zip(passages, expected, strict=True) if hit]
    assert 1 < len(right) < len(passages) and max(len(tokenizer.encode(f" {last}")) for _, last in right) > 1
