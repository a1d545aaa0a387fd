import numpy as np
import pytest
import torch

from retable.models.gpt import GPT
from tests.contracts.model_cases import GPTS
from tests.nn.by_hand import arrays, attention, layer_norm, sigmoid, sinusoids, turned

V, D, L, H, B, T = 11, 8, 2, 2, 2, 6
VARIANTS = [GPTS[name] for name in ("gpt", "gpt, swish", "gpt, as Vaswani's", "gpt, as Llama")] + [
    {"activation": "silu"}
]


def build(max_length: int = T, **settings) -> GPT:
    torch.manual_seed(0)
    model = GPT(V, D, L, H, max_length, dropout=0.1, **settings).eval()
    for parameter in model.parameters():  # far from initial weights: there attention is uniform and norms change little
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def position_by_position(model: GPT, ids: list[int], **settings) -> np.ndarray:
    """Return the hidden states (T, D) of one sequence in float64, computed by position and head."""
    p, waves = arrays(model), sinusoids(T, D)
    norm, positions, activation = (
        settings.get(name, first) for name, first in (("norm", "pre"), ("positions", "learnt"), ("activation", "gelu"))
    )

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return p[f"{name}.weight"] @ x + p.get(f"{name}.bias", 0.0)

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(x, p[f"{name}.weight"], p.get(f"{name}.bias", 0.0))

    def activate(x: np.ndarray, block: str) -> np.ndarray:
        match activation:
            case "relu":
                return np.maximum(x, 0)
            case "gelu":
                return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
            case "swish":
                return x * sigmoid(p[f"{block}.activation.beta"] * x)
            case "silu":
                return x * sigmoid(x)
        gate, value = np.split(x, 2)
        return gate * sigmoid(gate) * value

    def feed_forward(x: np.ndarray, block: str) -> np.ndarray:
        return linear(activate(linear(x, f"{block}.expand"), block), f"{block}.contract")

    def embed(token: int, t: int) -> np.ndarray:
        x = p["embedding.weight"][token]
        if positions == "learnt":
            return x + p["positions.weight"][t]
        return x if positions == "rotary" else np.sqrt(D) * x + waves[t]

    def attend(inputs: list[np.ndarray], block: str) -> list[np.ndarray]:
        projected, mixed = [linear(x, f"{block}.attention.query_key_value") for x in inputs], []
        for t in range(len(inputs)):
            heads = []
            for head in np.split(np.arange(D), H):
                queries, keys, values = ([x[head + k * D] for x in projected[: t + 1]] for k in range(3))
                if positions == "rotary":
                    queries, keys = ([turned(x, s) for s, x in enumerate(part)] for part in (queries, keys))
                heads.append(attention(queries[t], keys, values, (D // H) ** -0.5))
            mixed.append(linear(np.concatenate(heads), f"{block}.attention.output"))
        return mixed

    hidden = [embed(token, t) for t, token in enumerate(ids)]
    for block in (f"blocks.{i}" for i in range(L)):
        first, second = f"{block}.attention_norm", f"{block}.feed_forward_norm"
        if norm == "pre":
            mixed = attend([normed(h, first) for h in hidden], block)
            hidden = [h + m for h, m in zip(hidden, mixed, strict=True)]
            hidden = [h + feed_forward(normed(h, second), block) for h in hidden]
        else:
            mixed = attend(hidden, block)
            hidden = [normed(h + m, first) for h, m in zip(hidden, mixed, strict=True)]
            hidden = [normed(h + feed_forward(h, block), second) for h in hidden]
    return np.stack([normed(h, "norm") if norm == "pre" else h for h in hidden])


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_equals_a_forward_pass_written_position_by_position(settings):
    gpt, ids = build(**settings), torch.randint(V, (B, T))
    hidden, state = gpt(ids)
    assert state is None
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(gpt, sequence, **settings), atol=1e-4)


def test_separate_documents_are_as_if_each_stood_alone():
    model = build(9, positions="rotary", separate_documents=True, boundary=0)  # positions are relative
    ids = torch.tensor([[3, 1, 0, 4, 4, 5, 0, 0, 2]])
    together = model(ids)[0]
    alone = [model(document)[0] for document in ids.split([2, 4, 1, 2], dim=1)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), atol=1e-5, rtol=1e-5)
    model.separate_documents = False
    assert (model(ids)[0] - together)[:, 2:].abs().max() > 1e-2


@pytest.mark.parametrize("positions", ["learnt", "sinusoidal"])
def test_words_are_dropped_out_with_their_positions(positions):
    torch.manual_seed(0)
    model, ids = GPT(V, D, 0, H, T, dropout=0.5, norm="post", positions=positions), torch.randint(V, (B, T))
    hidden, whole = model(ids)[0], model.eval()(ids)[0]
    dropped = hidden == 0
    assert 0.2 < dropped.float().mean() < 0.8
    torch.testing.assert_close(hidden[~dropped], 2 * whole[~dropped])
