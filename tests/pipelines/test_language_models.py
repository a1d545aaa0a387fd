"""What every kind of left-to-right language model under conf/recipe/ must do, at a size of a few thousand weights."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

from retable.data.streams import TokenBatch
from retable.inference.build import build_counted, build_model
from retable.nn.transformer import Cache
from retable.objectives.base import CountsWords
from retable.training.weights import load_weights, save_weights
from tests.pipelines.recipes import COUNTED, OBJECTIVES, TRAINED, composed

T, B = 12, 3
SMALL = {
    "blocks": [[[3, 16]], [[2, 16]]], "d_model": 16, "d_embedding": 16, "d_cell": 24, "d_hidden": 16,
    "n_layers": 2, "n_heads": 2, "d_inner": 24,
    "max_length": T, "memory": T, "d_bottleneck": 8, "kernel_size": 3, "context": 4, "table_size": 500,
}  # fmt: skip


STEMS = ["".join(chr(97 + (i * k) % 26) for k in range(1, 2 + i % 7)) + str(i) for i in range(40)]
# What models ask of a tokenizer.
Words = SimpleNamespace(words=["<eos>", "<unk>", *STEMS], vocab_size=42, boundary=0)
V = Words.vocab_size


def config(name: str, *overrides: str):
    cfg = composed("pretrain", name, *overrides)
    for key in set(SMALL) & set(cfg.model):
        if cfg.model[key] is not None:
            cfg.model[key] = SMALL[key]
    if cfg.objective is not None and "cutoffs" in cfg.objective:
        cfg.objective.cutoffs = [10, 25]
    return cfg


CASES = [(name, None) for name in TRAINED] + [("prefix_lm", "causal_lm")]
CASES += [("lstm_small", objective) for objective in OBJECTIVES]


def build(name: str, objective: str | None):
    """The recipe's objective, or another one, on its model."""
    cfg = config(name, *([f"objective={objective}"] if objective else []))
    torch.manual_seed(1)
    built = instantiate(cfg.objective, model=build_model(cfg, Words), vocab_size=V)
    if isinstance(built, CountsWords):
        built.count(np.arange(V, 0, -1))
    for parameter in built.parameters():  # far from the start, where much is flat or zero
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return built


@pytest.fixture(params=CASES, ids=lambda case: "-".join(filter(None, case)))
def untrained(request):
    return build(*request.param)


@pytest.fixture
def lm(untrained):
    return untrained.eval()


def ids(rows: int, length: int = T, seed: int = 2) -> torch.Tensor:
    return torch.randint(V, (rows, length + 1), generator=torch.Generator().manual_seed(seed))


def log_prob(lm, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return lm.log_prob(tokens[:, :-1], tokens[:, 1:])[0]


def test_the_future_changes_nothing(lm):
    tokens = ids(B)
    before = log_prob(lm, tokens)
    for t in range(1, T):
        changed = tokens.clone()
        changed[:, t + 1 :] = (changed[:, t + 1 :] + 1) % V
        torch.testing.assert_close(log_prob(lm, changed)[:, :t], before[:, :t], atol=1e-4, rtol=1e-4)


def test_what_comes_before_matters(lm):
    tokens = ids(B)
    changed = tokens.clone()
    changed[:, T - 2] = (changed[:, T - 2] + 1) % V
    assert not torch.allclose(log_prob(lm, changed)[:, -1], log_prob(lm, tokens)[:, -1], atol=1e-4)


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_rows_of_a_batch_do_not_meet(lm, rows):
    tokens = ids(rows)
    alone = torch.cat([log_prob(lm, row[None]) for row in tokens])
    torch.testing.assert_close(log_prob(lm, tokens), alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("cuts", [[5], [1, 2, 3], list(range(1, T))])
def test_segments_give_what_the_whole_gives(lm, cuts):
    tokens = ids(B)
    whole, state, parts = log_prob(lm, tokens), lm.start, []
    with torch.no_grad():
        for start, stop in zip([0, *cuts], [*cuts, T], strict=True):
            part, state = lm.log_prob(tokens[:, start:stop], tokens[:, start + 1 : stop + 1], state)
            parts.append(part)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-4, rtol=1e-4)


def test_the_next_token_has_a_distribution_that_agrees(lm):
    tokens = ids(B)
    whole, state = log_prob(lm, tokens), lm.start
    with torch.no_grad():
        for t in range(T):
            following, state = lm.next_log_prob(tokens[:, t : t + 1], state)
            torch.testing.assert_close(following.exp().sum(dim=1), torch.ones(B), atol=1e-4, rtol=0)
            chosen = following.gather(1, tokens[:, t + 1 : t + 2])[:, 0]
            torch.testing.assert_close(chosen, whole[:, t], atol=1e-4, rtol=1e-4)


def test_every_tensor_of_the_state_has_its_batch_in_dimension_one(lm):
    def check(part):
        part = part.tensor if isinstance(part, Cache) else part
        if isinstance(part, torch.Tensor):
            assert part.shape[1] == B
        else:
            for inner in part or ():
                check(inner)

    with torch.no_grad():
        check(lm.next_log_prob(ids(B)[:, :4], lm.start)[1])


def test_every_parameter_gets_a_gradient(untrained):
    untrained.train()
    names: set[str] = set()
    for seed in range(3):  # dropout may spare a weight its gradient, once
        torch.manual_seed(seed)
        window = ids(B, seed=seed)
        untrained.loss(TokenBatch(window[:, :-1], window[:, 1:], fresh=True), None, 0)[0].backward()
        names |= {name for name, p in untrained.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name, _ in untrained.named_parameters()} == names


def test_saved_and_loaded_it_is_the_same(lm, tmp_path, request):
    save_weights(lm, tmp_path / "model.safetensors")
    other = build(*request.node.callspec.params["untrained"]).eval()
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(log_prob(other, ids(B)), log_prob(lm, ids(B)))
    assert torch.equal(log_prob(copy.deepcopy(lm), ids(B)), log_prob(lm, ids(B)))


@pytest.fixture(params=COUNTED)
def counted(request):
    model = build_counted(config(request.param), Words)
    model.estimate(stream(1, 4000))
    return request.param, model


def stream(seed: int, n: int) -> np.ndarray:
    """Sentences of Zipfian words that depend on the word before."""
    rng = np.random.default_rng(seed)
    words = 1 + np.minimum(rng.zipf(1.3, n) - 1, V - 2)
    words[1::2] = 1 + (words[::2][: len(words[1::2])] * 7 + rng.integers(2, size=len(words[1::2]))) % (V - 1)
    words[rng.random(n) < 0.1] = Words.boundary
    return words


def test_counted_tokens_have_the_probability_that_the_next_tokens_distribution_gives_them(counted):
    _, model = counted
    tokens = stream(2, 60)
    scores = model.log_prob(tokens)
    for i in range(len(tokens)):
        following = model.next_log_prob(tokens[:i])
        assert np.exp(following).sum() == pytest.approx(1, abs=1e-5)
        assert following[tokens[i]] == pytest.approx(scores[i], abs=1e-5)


def test_counted_saved_and_loaded_it_is_the_same(counted, tmp_path):
    name, model = counted
    model.save(tmp_path / "model.safetensors")
    other = build_counted(config(name), Words)
    other.load(tmp_path / "model.safetensors")
    tokens = stream(3, 200)
    assert np.array_equal(other.log_prob(tokens), model.log_prob(tokens))
