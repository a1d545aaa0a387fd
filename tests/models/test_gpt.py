import numpy as np
import pytest
import torch

from retable.errors import UsageError
from retable.models.gpt import GPT

V, D, L, H, B, T = 11, 8, 2, 2, 2, 6


@pytest.fixture
def gpt() -> GPT:
    torch.manual_seed(0)
    model = GPT(V, D, L, H, max_length=T, dropout=0.1).eval()
    for parameter in model.parameters():  # far from the start, where attention is flat and norms are idle
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def position_by_position(model: GPT, ids: list[int]) -> np.ndarray:
    """The hidden states (T, D) of one sequence in float64: one position, one head at a time."""
    p = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return p[f"{name}.weight"] @ x + p[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def gelu(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    hidden = [p["embedding.weight"][token] + p["positions.weight"][t] for t, token in enumerate(ids)]
    for block in (f"blocks.{i}" for i in range(L)):
        normed = [norm(h, f"{block}.attention_norm") for h in hidden]
        projected = [linear(h, f"{block}.attention.query_key_value") for h in normed]
        for t in range(len(ids)):
            heads = []
            for head in range(H):
                part = slice(head * D // H, (head + 1) * D // H)
                query, keys = projected[t][:D][part], [x[D : 2 * D][part] for x in projected[: t + 1]]
                values = [x[2 * D :][part] for x in projected[: t + 1]]
                weights = np.exp([query @ key / np.sqrt(D // H) for key in keys])
                heads.append(sum(w * value for w, value in zip(weights / weights.sum(), values, strict=True)))
            hidden[t] = hidden[t] + linear(np.concatenate(heads), f"{block}.attention.output")
            expanded = gelu(linear(norm(hidden[t], f"{block}.feed_forward_norm"), f"{block}.expand"))
            hidden[t] = hidden[t] + linear(expanded, f"{block}.contract")
    return np.stack([norm(h, "norm") for h in hidden])


def test_equals_a_forward_pass_written_position_by_position(gpt):
    ids = torch.randint(V, (B, T))
    hidden, state = gpt(ids)
    assert state is None
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(gpt, sequence), atol=1e-4)


def test_the_future_does_not_show(gpt):
    ids = torch.randint(V, (1, T))
    hidden, _ = gpt(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other, _ = gpt(changed)
        torch.testing.assert_close(other[:, :t], hidden[:, :t])
        assert (other[:, t:] - hidden[:, t:]).abs().amax(dim=2).min() > 1e-3


def test_initialisation():
    torch.manual_seed(0)
    for name, parameter in GPT(200, 64, 3, 2, max_length=64, dropout=0.0).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            std = 0.02 / 6**0.5 if name.endswith(("attention.output.weight", "contract.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name


def test_too_long_a_sequence_is_refused(gpt):
    with pytest.raises(UsageError, match=rf"{T + 1} tokens.*max_length={T}"):
        gpt(torch.zeros(1, T + 1, dtype=torch.long))
