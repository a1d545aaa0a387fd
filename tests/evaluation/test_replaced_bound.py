from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.masking import MaskedDocuments
from retable.evaluation.held_out import PretrainedObjective, mean_metrics
from retable.evaluation.perplexity import read_split
from retable.evaluation.replaced_bound import ReplacedBound, accuracies, proposals
from retable.grammar.masked import MaskedWords
from retable.models.bert import BERT
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.tokenizers.tokenizer import Tokenizer

SIZES = {"n_layers": 1, "n_heads": 2, "max_length": 32, "dropout": 0.0, "pooler": False}
LENGTH = 32


@pytest.fixture(scope="module")
def folder(tokens_of):
    return tokens_of("[PAD]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def batches_of(folder):
    """Yield batches of the test split in which each masked word is the mask."""
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    tokens, units = read_split(folder, "test", tokenizer.vocab_size)
    marks = tokenizer.boundary, tokenizer.special_ids, tokenizer.words
    return lambda seed, size: MaskedDocuments(tokens, units, *marks, seed, size, LENGTH, masked=1.0, random=0.0)


@pytest.fixture(scope="module")
def objective(folder):
    torch.manual_seed(1)
    vocab_size = Tokenizer.load(folder / "tokenizer.json").vocab_size
    model = BERT(vocab_size, 16, **SIZES)
    objective = ReplacedTokenDetection(model, vocab_size, partial(BERT, d_model=8, d_embedding=16, **SIZES))
    with torch.no_grad():  # the generator prefers frequent words
        objective.generator_head.decoder.bias.copy_(torch.linspace(5, -5, vocab_size))
    return objective


def test_the_accuracies_are_those_of_judges_who_try():
    """A word is drawn from p and masked at the rate; a word from q replaces it. Counting gives the more likely
    answer.
    """
    p, q, rate = np.array([0.6, 0.3, 0.1, 0.0]), np.array([0.2, 0.1, 0.3, 0.4]), 0.4
    generator, n = np.random.default_rng(1), 200_000
    word, drawn, masked = generator.choice(4, n, p=p), generator.choice(4, n, p=q), generator.random(n) < rate
    seen = np.where(masked, drawn, word)
    replaced = seen != word

    def best(kept):
        share = np.array([replaced[kept & (seen == x)].mean() for x in range(4)])
        return ((share[seen] > 0.5) == replaced)[kept].mean()

    blind, told = accuracies(p, q, rate)
    assert blind == pytest.approx(best(np.ones(n, dtype=bool)), abs=0.005)
    assert told == pytest.approx(best(masked), abs=0.005)
    assert 1 - rate + rate * told > blind  # knowing which places were masked helps


def test_the_generators_distribution_is_what_it_draws_from(batches_of, objective):
    batch = batches_of(1, 2).batch(0)
    with torch.no_grad():
        q = proposals(objective, batch)
        hidden = objective.generator(batch.input_ids, batch.lengths, batch.segments).flatten(0, 1)[batch.places]
        features = objective.generator_head(hidden)
        uniform = torch.rand((600, len(q)), generator=torch.Generator().manual_seed(2))
        drawn = np.array([objective.generator_head.drawn(features, each).numpy() for each in uniform])
    assert q.shape == (len(batch.places), objective.generator_head.decoder.out_features)
    assert q.sum(1) == pytest.approx(1)
    top = q.argmax(1)
    expected = q[np.arange(len(top)), top]
    found = (drawn == top).mean(0)
    assert (np.abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 600) + 1e-9).all()


class Certain:
    """A language in which all other words determine each word."""

    def posterior(self, tokens, place):
        return {tokens[place]: 1.0}


class Blank:
    """A language with two words that are equally likely everywhere."""

    def posterior(self, tokens, place):
        return {tokens[place]: 0.5, "the" if tokens[place] != "the" else "a": 0.5}


def bound(folder, language, objective, out, **settings):
    settings = {"length": LENGTH, "rate": 0.15, "words": 60} | settings
    return ReplacedBound(str(folder), language, **settings)(PretrainedObjective(objective, lambda split: None), out)


def test_what_follows_from_the_rest_is_always_told(folder, objective, tmp_path):
    metrics = bound(folder, Certain(), objective, tmp_path)
    names = {"replaced/accuracy", "replaced/accuracy_told", "replaced/baseline"}
    assert metrics.keys() == names | {f"{name}_standard_error" for name in names}
    assert metrics["replaced/accuracy"] == pytest.approx(1) and metrics["replaced/accuracy_told"] == pytest.approx(1)
    assert 0.8 < metrics["replaced/baseline"] < 0.95


def test_the_judge_who_is_told_errs_where_a_draw_is_half_likely(folder, objective, tmp_path):
    metrics = bound(folder, Blank(), objective, tmp_path)
    table = pd.read_csv(tmp_path / "replaced.csv")
    assert (table["told"] < 1).all() and (table["told"] > 0.5).all()
    for name, column in (("accuracy", "blind"), ("accuracy_told", "told")):  # 1 − s + s v, each with its share s
        share = (1 - metrics[f"replaced/{name}"]) / (1 - table[column].mean())
        assert metrics[f"replaced/{name}_standard_error"] == pytest.approx(share * table[column].sem(), rel=1e-3)
    assert metrics["replaced/accuracy"] == pytest.approx(0.93, abs=0.08)
    assert metrics["replaced/baseline"] <= metrics["replaced/accuracy"] <= metrics["replaced/accuracy_told"]


def test_the_shares_are_those_that_the_objective_measures(grammar, folder, batches_of, objective, tmp_path):
    """Compared with the objective's share of replaced tokens over the same and other rows; no judge is worse than
    the baseline.
    """
    metrics = bound(folder, MaskedWords(grammar), objective, tmp_path)
    batches = batches_of(0, 16)
    measured = mean_metrics(objective, batches)
    n_words = batches.steps_per_epoch * 16 * LENGTH * 0.15
    assert metrics["replaced/baseline"] == pytest.approx(1 - measured["replaced"], abs=4 * 0.15 * 0.5 / n_words**0.5)
    assert metrics["replaced/baseline"] < metrics["replaced/accuracy"] < metrics["replaced/accuracy_told"] <= 1
    table = pd.read_csv(tmp_path / "replaced.csv")
    assert len(table) >= 60 and table["blind"].between(0.5, 1).all()


def test_cells_without_a_generator_are_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="words=1 gives no standard error"):
        ReplacedBound(str(folder), Certain(), 32, 0.15, words=1)
    objective = MaskedLM(BERT(9, 16, **SIZES), 9, next_sentence=False)
    with pytest.raises(UsageError, match="replaced_token_detection"):
        bound(folder, Certain(), objective, tmp_path)
