from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from retable.core.errors import UsageError
from retable.data.encode import write_tokens
from retable.evaluation.sampling import Samples, document, scores, whole_sentences
from retable.grammar.language import tokens_of
from retable.models.base import LeftToRight
from retable.models.ngram import BackoffModel
from retable.objectives.causal_lm import CausalLM
from retable.tokenizers import word
from retable.tokenizers.tokenizer import Tokenizer

END = "\n"


@pytest.fixture(scope="module")
def folder(tokens_of):
    return tokens_of()


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return Tokenizer.load(folder / "tokenizer.json")


class Parrot(LeftToRight):
    """A recurrent model that recites one text from its start; its state is its place in the text."""

    start = None

    def __init__(self, vocab_size: int, text: list[int]):
        super().__init__()
        self.text = nn.functional.one_hot(torch.tensor(text), vocab_size).float()
        self.d_model = vocab_size
        self.unused = nn.Parameter(torch.zeros(1))

    def initialise(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data = 50 * torch.eye(self.d_model)

    def forward(self, input_ids, state=None):
        at = torch.full((1, len(input_ids)), -2) if state is None else state[0]  # the prompt has two tokens
        places = at[0][:, None] + torch.arange(1, input_ids.shape[1] + 1)
        return self.text[places.clamp(0, len(self.text) - 1)], (at + input_ids.shape[1],)


def test_what_a_reciter_writes_is_the_text_and_is_worth_what_the_text_is(grammar, told, tokenizer, folder):
    text = tokens_of(told[0])
    ids = [tokenizer.words.index("<eos>" if token == END else token) for token in text]
    model = CausalLM(Parrot(tokenizer.vocab_size, ids), tokenizer.vocab_size, tie=False, bias=False, reduction="mean")
    benchmark = Samples(str(folder), grammar, temperatures=[0.5, 1], top_p=[0.9], samples=3, length=len(text) + 5)
    metrics = benchmark(SimpleNamespace(objective=model, protocol=""), folder)
    for setting in ("temperature_0.5", "temperature_1", "top_p_0.9"):
        assert metrics[f"sampling/{setting}/tokens"] == 3 * len(text)
        assert metrics[f"sampling/{setting}/nats"] == pytest.approx(nats_a_token(grammar, told[:1]))
        assert metrics[f"sampling/{setting}/grammatical"] == 1
        assert metrics[f"sampling/{setting}/self_bleu"] == pytest.approx(100)
    table = pd.read_csv(folder / "sampling.csv")
    assert table["method"].tolist() == ["text", "temperature", "temperature", "top_p"]
    assert table["value"].tolist()[1:] == [0.5, 1, 0.9]
    assert told[0][0] in (folder / "samples.txt").read_text()


def nats_a_token(grammar, documents) -> float:
    sentences = [sentence for document in documents for sentence in document]
    n_tokens = sum(len(sentence.split()) + 1 for sentence in sentences)
    return -sum(map(grammar.sentence_log_probability, sentences)) / n_tokens


def test_the_held_out_text_stands_beside_the_samples(grammar, told, tokenizer, folder):
    model = BackoffModel(tokenizer.vocab_size, 2, tokenizer.boundary)
    metrics = Samples(str(folder), grammar, [], [], samples=40, length=10**6)(model, folder)
    assert metrics["sampling/text/nats"] == pytest.approx(nats_a_token(grammar, told))
    assert metrics["sampling/text/grammatical"] == 1


def test_documents_and_whole_sentences():
    assert document(["a", END, "b", END, END, "c", END, END]) == ["a", END, "b", END, END]
    assert document(["a", END, "b"]) == ["a", END, "b"]
    assert document([]) == []
    assert whole_sentences(["a", "b", END, "c", END, END]) == [["a", "b"], ["c"]]
    assert whole_sentences(["a", "b", END, "c"]) == [["a", "b"]]
    assert whole_sentences([END, END]) == whole_sentences([]) == []


def test_scores_of_texts_with_mistakes(grammar, told):
    first, second = told[:2]
    mistake = [first[1].split()[0], "nonsense", "words", "."]
    broken = [*first[0].split(), END, *mistake, END, *first[2].split(), END, END]
    cut = [*second[0].split(), END, *second[1].split()[:2]]
    found = scores(grammar, [broken, cut])
    right = [first[0], first[2], second[0]]
    assert (found["sentences"], found["grammatical"]) == (4, 3 / 4)
    log_probs = [grammar.sentence_log_probability(sentence) for sentence in right]
    assert found["nats"] == pytest.approx(-sum(log_probs) / sum(len(s.split()) + 1 for s in right))
    assert found["tokens"] == len(broken) + len(cut)
    nothing = scores(grammar, [["nonsense", END], ["words", END]])
    assert nothing["grammatical"] == 0 and np.isnan(nothing["nats"])
    assert np.isnan(scores(grammar, [["words"], ["words"]])["grammatical"])


def test_other_systems_and_corpora_are_refused(grammar, folder, tmp_path):
    with pytest.raises(UsageError, match="cannot predict the next word"):
        Samples(str(folder), grammar, [1.0], [])(SimpleNamespace(log_prob=None), folder)
    tokenizer = word.train(["a b"])
    tokenizer.save(tmp_path / "tokenizer.json")
    write_tokens(tokenizer, [["a b"]], True, tmp_path / "test")
    with pytest.raises(UsageError, match="corpus=grammar"):
        Samples(str(tmp_path), grammar, [1.0], [])(BackoffModel(4, 1, 1), tmp_path)
    with pytest.raises(UsageError, match=r"benchmark\.sampling\.samples=1"):
        Samples(str(tmp_path), grammar, [1.0], [], samples=1)
