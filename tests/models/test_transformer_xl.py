import numpy as np
import pytest
import torch
from torch import nn

from retable.models.transformer_xl import TransformerXL
from tests.nn.by_hand import arrays, layer_norm, softmax

V, D, L, H, B = 11, 8, 2, 2, 2


def transformer_xl(memory: int = 3, evaluation_memory: int = 5, **settings) -> TransformerXL:
    torch.manual_seed(0)
    settings = {"dropout": 0.0, "attention_dropout": 0.0} | settings
    model = TransformerXL(V, D, L, H, 12, memory, evaluation_memory, **settings)
    for parameter in model.parameters():  # far from initial weights: there attention is uniform and norms change little
        nn.init.normal_(parameter, std=0.5)
    return model


def position_by_position(model: TransformerXL, ids: list[int], first_seen: list[int]) -> np.ndarray:
    """Return the hidden states (T, D) of one sequence in float64, computed by position, head and key.

    Position t attends to the positions from first_seen[t] to t (Dai et al. 2019, section 3.3).
    """
    p, K = arrays(model), D // H

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def encoding(distance: int) -> np.ndarray:
        angles = [distance / 10000 ** (2 * i / D) for i in range(D // 2)]
        return np.array([*np.sin(angles), *np.cos(angles)])

    given: list[list[np.ndarray]] = [[] for _ in range(L)]  # the inputs of each layer, by position
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


@pytest.mark.parametrize("memory", [0, 3, 20])
def test_training_sees_the_segment_and_the_memory_before_it(memory):
    model, ids, lengths = transformer_xl(memory).train(), torch.randint(V, (B, 13)), [4, 5, 1, 3]
    hidden, state = by_segments(model, ids, lengths)
    starts = [start for start, length in zip([0, 4, 9, 10], lengths, strict=True) for _ in range(length)]
    first_seen = [max(start - memory, 0) for start in starts]
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(model, sequence, first_seen), atol=1e-4)
    assert state.shape == (L, B, min(memory, 13), D)


@pytest.mark.parametrize(("memory", "lengths"), [(0, [12, 1]), (3, [13]), (3, [4, 5, 1, 3]), (5, [1] * 13)])
def test_evaluation_sees_as_many_positions_back_however_the_text_is_cut(lengths, memory):
    model, ids = transformer_xl(evaluation_memory=memory).eval(), torch.randint(V, (B, 13))
    hidden, state = by_segments(model, ids, lengths)
    first_seen = [max(t - memory, 0) for t in range(13)]
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(model, sequence, first_seen), atol=1e-4)
    torch.testing.assert_close(state, model(ids)[1])


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
