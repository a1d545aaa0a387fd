import numpy as np
import pandas as pd
import pytest
import torch

from retable.data.encode import write_tokens
from retable.evaluation.bidirectional import BothDirections, Directions
from retable.models.elmo import ELMo
from retable.objectives.bidirectional_lm import BidirectionalLM
from retable.tokenizers import word

DOCUMENTS = [["a b a c", "b b"], ["c a"], ["b c c c a", "a"]]
D = 5


@pytest.fixture(scope="module")
def tokenizer():
    return word.train([line for document in DOCUMENTS for line in document])


@pytest.fixture(scope="module")
def system(tokenizer) -> BothDirections:
    torch.manual_seed(0)
    objective = BidirectionalLM(ELMo(tokenizer.words, D, 7, 2, 0.1, [(1, 4), (2, 6)], 4, 1), tokenizer.vocab_size)
    for parameter in objective.parameters():  # far from initial weights, so that all of the context matters
        torch.nn.init.normal_(parameter, std=0.5)
    return BothDirections(objective.eval(), tokenizer)


def distribution(system: BothDirections, context: list[int], backward: bool) -> np.ndarray:
    """Return the distribution after a context in reading order, from the equation of the softmax."""
    hidden, _ = system.objective.model(torch.tensor([context]), None, backward)
    logits = system.objective.head(hidden[0, -1]).detach().double().numpy()
    return logits - np.log(np.exp(logits).sum())


def test_each_direction_predicts_every_token_from_all_of_its_own_side(system, tokenizer):
    tokens = np.array(tokenizer.encode("a b a c\nb b\nc a\n"), dtype="<u2")
    stream, mark = tokens.tolist(), tokenizer.boundary
    forward, backward = system.log_prob(tokens), system.log_prob_backward(tokens)
    assert forward.dtype == backward.dtype == np.float64
    for i, token in enumerate(stream):
        before, behind = [mark, *stream[:i]], [mark, *stream[:i:-1]]
        assert forward[i] == pytest.approx(distribution(system, before, False)[token], abs=1e-5)
        assert backward[i] == pytest.approx(distribution(system, behind, True)[token], abs=1e-5)


def test_the_benchmark_sums_each_unit_and_averages_the_directions(system, tokenizer, tmp_path):
    tokenizer.save((folder := tmp_path) / "tokenizer.json")
    write_tokens(tokenizer, DOCUMENTS, True, folder / "test")
    benchmark = Directions(str(folder), ["test"])
    assert isinstance(system, benchmark.requires) and all(path.exists() for path in benchmark.inputs)
    metrics = benchmark(system, folder)
    tokens, units = np.fromfile(folder / "test.bin", dtype="<u2"), np.load(folder / "test.units.npy")
    scores = {"forward": system.log_prob(tokens), "backward": system.log_prob_backward(tokens)}
    for name, score in scores.items():
        assert metrics[f"test/{name}/perplexity_token"] == pytest.approx(np.exp(-score.mean()))
    product = metrics["test/forward/perplexity_token"] * metrics["test/backward/perplexity_token"]
    assert metrics["test/mean/perplexity_token"] == pytest.approx(product**0.5)
    rows = pd.read_csv(folder / "directions.csv").query("direction == 'backward'")
    expected = [-each.sum() for each in np.split(scores["backward"], np.cumsum(units[:-1, 0]))]
    assert rows["nats"].tolist() == pytest.approx(expected, abs=1e-5)
    assert rows[["tokens", "words", "bytes", "lost"]].to_numpy().tolist() == units[:, :4].tolist()
