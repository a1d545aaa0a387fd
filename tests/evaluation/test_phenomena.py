import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.data.encode import write_tokens
from retable.evaluation.perplexity import Perplexity
from retable.evaluation.phenomena import Phenomena
from retable.grammar.interpreters import PHENOMENA
from retable.grammar.language import tokens_of
from retable.tokenizers import character, word


@pytest.fixture(scope="module")
def folder(tokens_of):
    return tokens_of()


class Oracle:
    """A system with the grammar's own probabilities, and `extra` nats more for some ids."""

    protocol = "whole document"

    def __init__(self, grammar, documents, extra: dict[int, float] | None = None):
        self.scores, self.extra = np.concatenate([grammar.score(document) for document in documents]), extra or {}

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        return self.scores - np.array([self.extra.get(int(token), 0.0) for token in tokens])


def test_the_oracle_has_no_excess_and_what_a_model_lacks_stands_under_its_phenomenon(grammar, told, folder):
    metrics = Phenomena(str(folder), grammar)(Oracle(grammar, told), folder)
    names = [*PHENOMENA, "total"]
    assert metrics.keys() == {f"phenomena/{n}/{m}" for n in names for m in ("excess", "entropy", "share")}
    for name in names:
        assert metrics[f"phenomena/{name}/excess"] == pytest.approx(0, abs=1e-12)
    assert sum(metrics[f"phenomena/{name}/share"] for name in PHENOMENA) == pytest.approx(1)
    table = pd.read_csv(folder / "phenomena.csv")
    n_tokens = table.groupby("unit")["tokens"].sum()
    assert n_tokens.tolist() == [len(tokens_of(document)) for document in told]
    # Each closing bracket has two nats more than under the true distribution.
    ids = {text: i for i, text in enumerate(["<unk>", "<eos>", *sorted(grammar.vocabulary)])}
    closing = {ids[bracket]: 2.0 for bracket in ")]}"}
    metrics = Phenomena(str(folder), grammar)(Oracle(grammar, told, closing), folder)
    n_brackets = sum(sentence.split().count(b) for d in told for sentence in d for b in ")]}")
    n_tokens = sum(len(tokens_of(document)) for document in told)
    assert n_brackets > 3
    for name in PHENOMENA:
        excess = metrics[f"phenomena/{name}/excess"] * metrics[f"phenomena/{name}/share"] * n_tokens
        assert excess == pytest.approx(2 * n_brackets * (name == "nesting"), abs=1e-8)


def test_the_classes_sum_to_the_excess_of_the_perplexity_benchmark(grammar, told, folder):
    model = Oracle(grammar, told, {i: 0.01 * i for i in range(3000)})
    metrics = Phenomena(str(folder), grammar)(model, folder)
    test = Perplexity(str(folder), ["test"])(model, folder)
    truth = -sum(grammar.log_probability(document) for document in told)
    n = test["test/tokens"]
    parts = [metrics[f"phenomena/{p}/excess"] * metrics[f"phenomena/{p}/share"] for p in PHENOMENA]
    assert sum(parts) == pytest.approx((test["test/nats"] - truth) / n, rel=1e-9)
    assert metrics["phenomena/total/excess"] == pytest.approx(sum(parts), rel=1e-9)
    assert metrics["phenomena/total/entropy"] == pytest.approx(truth / n, rel=1e-9)


def test_other_texts_and_other_tokens_are_refused(grammar, tmp_path):
    tokenizer = word.train(["a b"])
    tokenizer.save(tmp_path / "tokenizer.json")
    write_tokens(tokenizer, [["a b"]], True, tmp_path / "test")
    with pytest.raises(UsageError, match="corpus=grammar"):
        Phenomena(str(tmp_path), grammar)(Oracle(grammar, [["a b"]]), tmp_path)
    character.train(["a b"]).save(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match="tokenizer=word"):
        Phenomena(str(tmp_path), grammar)(Oracle(grammar, [["a b"]]), tmp_path)
