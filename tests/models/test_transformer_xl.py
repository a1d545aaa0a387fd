import numpy as np
import pytest
import torch
from torch import nn

from retable.models.transformer_xl import TransformerXL, shift, sinusoids
from tests.nn.by_hand import arrays, layer_norm, softmax

V, D, L, H, B = 11, 8, 2, 2, 2


def transformer_xl(memory: int = 3, evaluation_memory: int = 5, **settings) -> TransformerXL:
    torch.manual_seed(0)
    settings = {"dropout": 0.0, "attention_dropout": 0.0} | settings
    model = TransformerXL(V, D, L, H, 12, memory, evaluation_memory, **settings)
    for parameter in model.parameters():  # far from the start, where attention is flat and norms are idle
        nn.init.normal_(parameter, std=0.5)
    return model


def position_by_position(model: TransformerXL, ids: list[int], first_seen: list[int]) -> np.ndarray:
    """The hidden states (T, D) of one sequence in float64: one position, one head, one key at a time.

    The position t sees those from first_seen[t] to itself (Dai et al. 2019, section 3.3).
    """
    p, K = arrays(model), D // H

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def encoding(distance: int) -> np.ndarray:
        angles = [distance / 10000 ** (2 * i / D) for i in range(D // 2)]
        return np.array([*np.sin(angles), *np.cos(angles)])

    given: list[list[np.ndarray]] = [[] for _ in range(L)]  # what each layer got at each position
    outputs = []
    for t, token in enumerate(ids):
        hidden = p["embedding.weight"][token] * np.sqrt(D)
        for number in range(L):
            layer = f"layers.{number}"
            given[number].append(hidden)
            heads = []
            for head in range(H):
                part = slice(head * K, (head + 1) * K)
                query = (p[f"{layer}.query.weight"] @ hidden)[part]
                u, v = p["content_bias"][part], p["position_bias"][part]
                scores, values = [], []
                for s in range(first_seen[t], t + 1):
                    key_value = p[f"{layer}.key_value.weight"] @ given[number][s]
                    key, relative = key_value[:D][part], (p[f"{layer}.position.weight"] @ encoding(t - s))[part]
                    scores.append((query @ key + query @ relative + u @ key + v @ relative) / np.sqrt(K))
                    values.append(key_value[D:][part])
                heads.append(softmax(np.array(scores)) @ np.stack(values))
            hidden = norm(hidden + p[f"{layer}.output.weight"] @ np.concatenate(heads), f"{layer}.attention_norm")
            expanded = np.maximum(p[f"{layer}.expand.weight"] @ hidden + p[f"{layer}.expand.bias"], 0)
            contracted = p[f"{layer}.contract.weight"] @ expanded + p[f"{layer}.contract.bias"]
            hidden = norm(hidden + contracted, f"{layer}.feed_forward_norm")
        outputs.append(hidden)
    return np.stack(outputs)


def by_segments(model: TransformerXL, ids: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    state, parts = None, []
    for segment in ids.split(lengths, dim=1):
        hidden, state = model(segment, state)
        parts.append(hidden)
    return torch.cat(parts, dim=1), state


@pytest.mark.parametrize("memory", [0, 1, 3, 4, 20])
def test_training_sees_the_segment_and_the_memory_before_it(memory):
    model, ids, lengths = transformer_xl(memory).train(), torch.randint(V, (B, 13)), [4, 5, 1, 3]
    hidden, state = by_segments(model, ids, lengths)
    starts = [start for start, length in zip([0, 4, 9, 10], lengths, strict=True) for _ in range(length)]
    first_seen = [max(start - memory, 0) for start in starts]
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(model, sequence, first_seen), atol=1e-4)
    assert state.shape == (L, B, min(memory, 13), D)


@pytest.mark.parametrize("lengths", [[13], [4, 5, 1, 3], [1] * 13, [12, 1]])
@pytest.mark.parametrize("memory", [0, 3, 5, 20])
def test_evaluation_sees_as_many_positions_back_however_the_text_is_cut(lengths, memory):
    model, ids = transformer_xl(evaluation_memory=memory).eval(), torch.randint(V, (B, 13))
    hidden, state = by_segments(model, ids, lengths)
    first_seen = [max(t - memory, 0) for t in range(13)]
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(model, sequence, first_seen), atol=1e-4)
    torch.testing.assert_close(state, model(ids)[1])


@pytest.mark.parametrize("mode", [True, False])
def test_segments_equal_the_whole_where_the_memory_holds_all(mode):
    model, ids = transformer_xl(memory=20, evaluation_memory=20).train(mode), torch.randint(V, (B, 13))
    whole, end = model(ids)
    for cut in range(1, 13):
        hidden, state = by_segments(model, ids, [cut, 13 - cut])
        torch.testing.assert_close(hidden, whole)
        torch.testing.assert_close(state, end)


@pytest.mark.parametrize("mode", [True, False])
def test_the_future_does_not_show_across_the_memory_either(mode):
    model, ids = transformer_xl(memory=4, evaluation_memory=4).train(mode), torch.randint(V, (1, 12))
    hidden, _ = by_segments(model, ids, [5, 4, 3])
    for t in range(12):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other, _ = by_segments(model, changed, [5, 4, 3])
        assert torch.equal(other[:, :t], hidden[:, :t])
        assert (other[:, t:] - hidden[:, t:]).abs().amax(dim=2).min() > 1e-3


def test_the_past_shows_as_far_as_the_layers_memories_reach():
    # A token shows one memory back for each layer (section 3.2), and not a position further.
    model, ids, memory = transformer_xl(evaluation_memory=3).eval(), torch.randint(V, (1, 15)), 3
    changed = ids.clone()
    changed[:, 2] = (changed[:, 2] + 1) % V
    hidden, _ = by_segments(model, ids, [5] * 3)
    other, _ = by_segments(model, changed, [5] * 3)
    differs = (hidden != other).any(dim=2)[0].tolist()
    assert differs == [2 <= t <= 2 + L * memory for t in range(15)]


def test_no_gradient_enters_the_memory():
    model = transformer_xl().train()
    _, state = model(torch.randint(V, (B, 5)))
    assert not state.requires_grad
    weight = model.embedding.weight
    hidden, _ = model(torch.zeros(B, 2, dtype=torch.long), state)
    (gradient,) = torch.autograd.grad(hidden.pow(3).sum(), weight)
    assert gradient[0].any() and not gradient[1:].any()


def test_the_memory_holds_copies_of_what_it_keeps_alone():
    model = transformer_xl(memory=3).train()
    _, state = model(torch.randint(V, (B, 50)))
    assert state.untyped_storage().nbytes() == state.numel() * 4


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_acts_in_training_alone(settings):
    model, ids = transformer_xl(**settings).train(), torch.randint(V, (B, 6))
    assert not torch.equal(model(ids)[0], model(ids)[0])
    model.eval()
    assert torch.equal(model(ids)[0], model(ids)[0])
    torch.testing.assert_close(model(ids)[0], transformer_xl(evaluation_memory=5).eval()(ids)[0])


def test_variational_dropout_holds_over_positions_and_the_other_changes():
    for variational in (False, True):
        model = transformer_xl(dropout=0.5, variational=variational).train()
        dropped = model(torch.randint(V, (B, 50)))[0] == 0
        always = dropped.all(dim=1) | ~dropped.any(dim=1)
        assert always.all() if variational else not always.any()


def test_shift_moves_each_querys_scores_to_its_keys():
    M, T = 3, 4
    S = M + T
    scores = torch.arange(S - 1.0, -1, -1).expand(B, H, T, S)  # the distances themselves
    shifted = shift(scores)
    assert shifted.shape == scores.shape
    for i in range(T):
        for j in range(M + i + 1):
            assert (shifted[:, :, i, j] == M + i - j).all()


def test_sinusoids():
    encodings = sinusoids(torch.tensor([0, 7]), 6)
    angles = 7 / 10000 ** np.array([0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(encodings[0], [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(encodings[1], [*np.sin(angles), *np.cos(angles)], rtol=1e-5)


def test_initialisation():
    torch.manual_seed(0)
    model = TransformerXL(200, 64, 2, 2, 128, 8, 8, 0.0, 0.0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith(("expand.bias", "contract.bias")):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.25 if "_bias" in name else 0.05), name
