"""Test the benchmark of steering with a given model and a given language."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from retable.core.errors import UsageError
from retable.evaluation.steering import Sentence, Steering
from retable.tokenizers import word

WORDS = ["good", "bad", "so"]
# Probabilities after any word: good, bad, so, the end.
AFTER = {
    None: [0.3, 0.3, 0.4, 0.0],
    "good": [0.1, 0.1, 0.2, 0.6],
    "bad": [0.2, 0.1, 0.1, 0.6],
    "so": [0.4, 0.3, 0.2, 0.1],
}


def judge(sentence: str) -> str:
    """Return the last word of a sentence as its label."""
    return "good" if sentence.split()[-1:] == ["good"] else "other"


class Chain:
    """The language model: a Markov chain of words."""

    protocol = "a chain"

    def __init__(self, words: list[str]):
        self.words = words

    def log_prob(self, tokens):
        raise NotImplementedError

    def next_log_prob(self, context):
        last = self.words[context[-1]]
        row = np.zeros(len(self.words))
        row[[self.words.index(name) for name in (*WORDS, "<eos>")]] = AFTER.get(last, AFTER[None])
        with np.errstate(divide="ignore"):
            return np.log(row)


class Language:
    """The true distribution: the same chain, without sentences in which a word follows itself."""

    def score_tokens(self, tokens):
        steps = zip([None, *tokens], tokens, strict=False)
        return np.array([self._step(*step) for step in steps])

    def sentence_log_probability(self, sentence):
        return float(self.score_tokens([*sentence.split(), "\n"]).sum())

    def _step(self, before, after):
        if before == after:
            return -np.inf
        return float(np.log(AFTER[before][[*WORDS, "\n"].index(after)]))


class Knowing:
    """A discriminator that is right: it predicts the last word of the sentence, from the chain."""

    device, labels, boundary = torch.device("cpu"), ["good", "other"], 0

    def __init__(self, words: list[str], folder: Path):
        self.words, self.files, self.digest = words, [folder / "weights"], ""
        # p(the last word is good | the present word), as linear equations of the chain
        inner = np.array([AFTER[name][:3] for name in WORDS])
        self.ends = np.linalg.solve(np.eye(3) - inner, [AFTER["good"][3], 0, 0])

    def require_tokens(self, digest):
        self.digest = digest

    def start(self, n_rows):
        return torch.empty((n_rows, 0), dtype=torch.long)

    def extend(self, ids, state):
        state = torch.cat([state, ids], dim=1)
        return torch.tensor([self._told([self.words[i] for i in row]) for row in state.tolist()]).float().log(), state

    def _told(self, text):
        *before, last = text
        good = self.ends[WORDS.index(last)] if last in WORDS else float(before[-1:] == ["good"])
        return [good, 1 - good]

    def select(self, state, rows, last=None):
        return state[rows]


@pytest.fixture
def tokenizer(tmp_path):
    made = word.train([], vocabulary=WORDS)
    made.save(tmp_path / "tokenizer.json")
    return made


@pytest.fixture
def found(tokenizer, tmp_path):
    knowing = Knowing(tokenizer.words, tmp_path)
    settings = {"samples": 300, "length": 30, "top_k": 10, "seed": 1}
    benchmark = Steering(str(tmp_path), Language(), judge, knowing, "good", ["so", ""], **settings)
    assert [path.name for path in benchmark.inputs] == ["tokenizer.json", "weights"]
    metrics = benchmark(Chain(tokenizer.words), tmp_path)
    assert knowing.digest == tokenizer.digest
    return metrics


def test_the_label_is_there_always_and_as_likely_as_in_what_is_kept(found):
    assert found["steering/sampled/n"] == found["steering/steered/n"] == 600
    share = found["steering/sampled/label"]
    assert 0.3 < share < 0.7 and found["steering/kept/n"] == pytest.approx(600 * share)
    assert found["steering/steered/label"] == found["steering/kept/label"] == 1
    for score in ("length", "nats_sentence", "nats_token", "grammatical"):
        steered, kept = found[f"steering/steered/{score}"], found[f"steering/kept/{score}"]
        assert steered == pytest.approx(kept, rel=0.1), score  # both are drawn from the distribution given the label


def test_nats_are_those_of_model_and_language(found, tmp_path):
    rows = pd.read_csv(tmp_path / "steering.csv", index_col="sentences")
    assert [*rows.index] == ["sampled", "steered", "kept"]
    for name, row in rows.iterrows():
        assert [*row] == pytest.approx([found[f"steering/{name}/{score}"] for score in row.index], rel=1e-4)
        assert row["nats_sentence"] == pytest.approx(row["nats_token"] * row["length"], rel=1e-4)
        assert 0.4 < row["grammatical"] < 1 and row["true_nats_sentence"] < row["nats_sentence"]
    shown = (tmp_path / "samples.txt").read_text()
    _, *steered = shown.partition("steered\n\n")[2].partition("\n\n")[0].splitlines()
    assert steered and all(judge(line) == "good" for line in steered)


def test_one_sentence_by_hand(tokenizer, tmp_path):
    benchmark = Steering(str(tmp_path), Language(), judge, Knowing(tokenizer.words, tmp_path), "good", ["so"])
    sentences = [
        Sentence(["so"], ["good", "\n"], np.log(0.4 * 0.6)),
        Sentence(["so"], ["so", "bad", "\n"], np.log(0.2 * 0.3 * 0.6)),  # the language does not contain it
        Sentence(["so"], ["good", "so", "good"], np.log(0.4 * 0.2 * 0.4)),  # cut before its end
    ]
    scores = benchmark.scores(sentences)
    assert (
        scores["n"] == 3 and scores["label"] == pytest.approx(2 / 3) and scores["grammatical"] == pytest.approx(1 / 3)
    )
    assert scores["length"] == pytest.approx(8 / 3)
    assert scores["true_nats_sentence"] == pytest.approx(-np.log(0.4 * 0.6))
    assert scores["true_nats_token"] == pytest.approx(-np.log(0.4 * 0.6) / 2)
    assert scores["nats_token"] == pytest.approx(-np.log(0.24 * 0.036 * 0.032) / 8)


def test_what_it_can_not_be_asked(tokenizer, tmp_path):
    knowing = Knowing(tokenizer.words, tmp_path)
    with pytest.raises(UsageError, match=r"steering\.beginnings: 'thus' is not in the vocabulary; write another word"):
        Steering(str(tmp_path), Language(), judge, knowing, "good", ["so thus"])(Chain(tokenizer.words), tmp_path)
    with pytest.raises(UsageError, match="the discriminator has no label=fine; write one of good, other"):
        Steering(str(tmp_path), Language(), judge, knowing, "fine", ["so"])(Chain(tokenizer.words), tmp_path)
