import numpy as np
import pytest
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.exchange.families import weights_in_transformers
from retable.models.gpt import GPT

V, D, L, H, B, T = 11, 8, 2, 2, 2, 6
VARIANTS: dict[str, dict] = {
    "gpt2": {},
    "post_norm": {"norm": "post"},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary"},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "swiglu"},
    "swish": {"activation": "swish"},
    "vaswani": {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
    "llama": {"positions": "rotary", "activation": "swiglu", "bias": False},
}


def build(variant: str, max_length: int = T) -> GPT:
    torch.manual_seed(0)
    model = GPT(V, D, L, H, max_length, dropout=0.1, **VARIANTS[variant]).eval()
    for parameter in model.parameters():  # far from the start, where attention is flat and norms are idle
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    return request.param


@pytest.fixture
def gpt(variant) -> GPT:
    return build(variant)


def position_by_position(
    model: GPT,
    ids: list[int],
    norm: str = "pre",
    positions: str = "learnt",
    activation: str = "gelu",
    bias: bool = True,
) -> np.ndarray:
    """The hidden states (T, D) of one sequence in float64: one position, one head at a time."""
    p = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}

    def shift(name: str) -> np.ndarray | float:
        return p[f"{name}.bias"] if bias else 0.0

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return p[f"{name}.weight"] @ x + shift(name)

    def layer_norm(x: np.ndarray, name: str) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + shift(name)

    def silu(x: np.ndarray) -> np.ndarray:
        return x / (1 + np.exp(-x))

    def activate(x: np.ndarray, block: str) -> np.ndarray:
        if activation == "relu":
            return np.maximum(x, 0)
        if activation == "gelu":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        if activation == "swish":
            return x / (1 + np.exp(-p[f"{block}.activation.beta"] * x))
        return silu(x) if activation == "silu" else silu(x[: len(x) // 2]) * x[len(x) // 2 :]

    def feed_forward(x: np.ndarray, block: str) -> np.ndarray:
        return linear(activate(linear(x, f"{block}.expand"), block), f"{block}.contract")

    def embed(token: int, t: int) -> np.ndarray:
        x = p["embedding.weight"][token]
        if positions == "learnt":
            return x + p["positions.weight"][t]
        if positions == "rotary":
            return x
        wave = [(np.sin, np.cos)[i % 2](t / 10000 ** (i // 2 * 2 / D)) for i in range(D)]
        return np.sqrt(D) * x + wave

    def turn(x: np.ndarray, t: int) -> np.ndarray:
        """Su et al. (2021): as complex numbers, each pair of dimensions times e^(i t θ)."""
        if positions != "rotary":
            return x
        turned = (x[::2] + 1j * x[1::2]) * np.exp(1j * t * 10000.0 ** (-np.arange(0, len(x), 2) / len(x)))
        return np.stack([turned.real, turned.imag], axis=1).ravel()

    def attend(inputs: list[np.ndarray], block: str) -> list[np.ndarray]:
        projected, mixed = [linear(x, f"{block}.attention.query_key_value") for x in inputs], []
        for t in range(len(inputs)):
            heads = []
            for head in range(H):
                part = slice(head * D // H, (head + 1) * D // H)
                query = turn(projected[t][:D][part], t)
                keys = [turn(x[D : 2 * D][part], s) for s, x in enumerate(projected[: t + 1])]
                values = [x[2 * D :][part] for x in projected[: t + 1]]
                weights = np.exp([query @ key / np.sqrt(D // H) for key in keys])
                heads.append(sum(w * value for w, value in zip(weights / weights.sum(), values, strict=True)))
            mixed.append(linear(np.concatenate(heads), f"{block}.attention.output"))
        return mixed

    hidden = [embed(token, t) for t, token in enumerate(ids)]
    for block in (f"blocks.{i}" for i in range(L)):
        first, second = f"{block}.attention_norm", f"{block}.feed_forward_norm"
        if norm == "pre":
            mixed = attend([layer_norm(h, first) for h in hidden], block)
            hidden = [h + m for h, m in zip(hidden, mixed, strict=True)]
            hidden = [h + feed_forward(layer_norm(h, second), block) for h in hidden]
        else:
            mixed = attend(hidden, block)
            hidden = [layer_norm(h + m, first) for h, m in zip(hidden, mixed, strict=True)]
            hidden = [layer_norm(h + feed_forward(h, block), second) for h in hidden]
    return np.stack([layer_norm(h, "norm") if norm == "pre" else h for h in hidden])


def in_pieces(model: GPT, ids: Tensor, lengths: list[int]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The hidden states of `ids`, so many at a time, and the last state."""
    parts, state = [], model.start
    for piece in ids.split(lengths, dim=1):
        hidden, state = model(piece, state)
        parts.append(hidden)
    return torch.cat(parts, dim=1), state


def test_equals_a_forward_pass_written_position_by_position(gpt, variant):
    ids = torch.randint(V, (B, T))
    hidden, state = gpt(ids)
    assert state is None
    for row, sequence in zip(hidden.detach(), ids.tolist(), strict=True):
        np.testing.assert_allclose(row, position_by_position(gpt, sequence, **VARIANTS[variant]), atol=1e-4)


@pytest.mark.parametrize("variant", ["gpt2", "rotary", "vaswani"])
def test_the_future_does_not_show(gpt):
    ids = torch.randint(V, (1, T))
    hidden, _ = gpt(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other, _ = gpt(changed)
        torch.testing.assert_close(other[:, :t], hidden[:, :t])
        assert (other[:, t:] - hidden[:, t:]).abs().amax(dim=2).min() > 1e-3


@pytest.mark.parametrize("lengths", [[T], [1] * T, [3, 1, 2], [1, 5]], ids=str)
def test_going_on_from_a_state_equals_all_at_once(gpt, lengths):
    ids = torch.randint(V, (B, T))
    hidden, state = in_pieces(gpt, ids, lengths)
    torch.testing.assert_close(hidden, gpt(ids)[0], atol=1e-5, rtol=1e-5)
    assert [cache.tensor.shape for cache in state] == [(2, B, H, T, D // H)] * L


def separating(positions: str) -> GPT:
    torch.manual_seed(0)
    model = GPT(V, D, L, H, 9, 0.0, positions=positions, separate_documents=True, boundary=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def test_separate_documents_are_as_if_each_stood_alone():
    model = separating("rotary")  # by which only distances matter
    ids = torch.tensor([[3, 1, 0, 4, 4, 5, 0, 0, 2]])
    together = model(ids)[0]
    alone = [model(document)[0] for document in ids.split([2, 4, 1, 2], dim=1)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), atol=1e-5, rtol=1e-5)
    model.separate_documents = False
    assert (model(ids)[0] - together)[:, 2:].abs().max() > 1e-2


@pytest.mark.parametrize("lengths", [[9], [1] * 9, [4, 3, 2]], ids=str)
def test_separate_documents_go_on_from_a_state(lengths):
    model = separating("learnt")
    ids = torch.tensor([[3, 1, 0, 4, 4, 0, 0, 2, 5], [0, 1, 2, 3, 0, 5, 6, 7, 0]])
    hidden, state = in_pieces(model, ids, lengths)
    torch.testing.assert_close(hidden, model(ids)[0], atol=1e-5, rtol=1e-5)
    assert state[-1].shape == (1, *ids.shape)


@torch.no_grad()
def test_a_state_has_its_batch_in_dimension_1(gpt):
    ids, more = torch.randint(V, (3, 4)), torch.randint(V, (3, 2))
    _, state = gpt(ids, gpt.start)
    hidden, _ = gpt(more, state)
    chosen = torch.tensor([2, 0, 0, 1])
    again, _ = gpt(more[chosen], tuple(cache.select(chosen) for cache in state))
    torch.testing.assert_close(again, hidden[chosen])


def test_bf16_goes_on_from_a_state_as_well(gpt):
    # A tenth of the spread: eight bits of mantissa, through two layers of large weights.
    ids = torch.randint(V, (B, T))
    exact, _ = gpt(ids)
    with torch.autocast("cpu", torch.bfloat16):
        whole, _ = gpt(ids)
        pieces, state = in_pieces(gpt, ids, [3, 1, 2])
    assert {cache.tensor.dtype for cache in state} == {torch.bfloat16}
    for hidden in (whole, pieces):
        assert (hidden.float() - exact).square().mean().sqrt() < 0.1 * exact.std()


def test_every_parameter_gets_a_gradient(gpt):
    gpt(torch.randint(V, (B, T)))[0].square().sum().backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in gpt.named_parameters()}
    assert all(reached.values()), reached


def test_only_parameters_need_saving(gpt, variant):
    torch.manual_seed(1)
    other, ids = GPT(V, D, L, H, T, dropout=0.0, **VARIANTS[variant]).eval(), torch.randint(V, (B, T))
    with torch.no_grad():
        for mine, its in zip(other.parameters(), gpt.parameters(), strict=True):
            mine.copy_(its)
    assert torch.equal(other(ids)[0], gpt(ids)[0])
    assert set(gpt.state_dict()) == {name for name, _ in gpt.named_parameters()}


@pytest.mark.parametrize("positions", ["learnt", "sinusoidal", "rotary"])
def test_what_goes_into_the_blocks_is_dropped_out_in_training(positions):
    torch.manual_seed(0)
    model, ids = GPT(V, D, 0, H, T, dropout=0.5, norm="post", positions=positions), torch.randint(V, (B, T))
    hidden, whole = model(ids)[0], model.eval()(ids)[0]
    dropped = hidden == 0
    assert 0.2 < dropped.float().mean() < 0.8
    torch.testing.assert_close(hidden[~dropped], 2 * whole[~dropped])


@pytest.mark.parametrize("settings", [{}, {"initializer_range": 0.05}])
@pytest.mark.parametrize(("norm", "share"), [("pre", 6**-0.5), ("post", 1.0)])
def test_initialisation(norm, share, settings):
    torch.manual_seed(0)
    for name, parameter in GPT(200, 64, 3, 2, max_length=64, dropout=0.0, norm=norm, **settings).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            std = settings.get("initializer_range", 0.02) * (
                share if name.endswith(("attention.output.weight", "contract.weight")) else 1
            )
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name


def test_sinusoids_stand_beside_words_of_about_their_size():
    """Vaswani et al. 2017, section 3.4, multiply embeddings by √D, which their code draws with a variance of 1/D."""
    torch.manual_seed(0)
    gpt = GPT(200, 64, 1, 2, max_length=64, dropout=0.0, positions="sinusoidal")
    assert (gpt.embedding.weight * 8).std().item() == pytest.approx(1, rel=0.05)
    assert gpt.sinusoids.square().mean().item() == pytest.approx(0.5, rel=0.05)


def test_too_long_a_sequence_is_refused(gpt):
    with pytest.raises(UsageError, match=rf"{T + 1} tokens.*max_length={T}"):
        gpt(torch.zeros(1, T + 1, dtype=torch.long))
    _, state = gpt(torch.zeros(1, T, dtype=torch.long), gpt.start)
    with pytest.raises(UsageError, match=rf"{T + 1} tokens.*max_length={T}"):
        gpt(torch.zeros(1, 1, dtype=torch.long), state)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"norm": "both"}, "no norm=both; write one of pre, post"),
        ({"positions": "relative"}, "no positions=relative; write one of learnt, sinusoidal, rotary"),
        ({"activation": "tanh"}, "no activation=tanh; write one of relu, gelu, silu, swiglu, swish"),
    ],
)
def test_an_unknown_setting_is_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        GPT(V, D, L, H, T, 0.0, **setting)


def test_equals_gpt2_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=V, n_positions=T, n_embd=D, n_layer=L, n_head=H)
    theirs, ours = transformers.GPT2Model(config).eval(), build("gpt2")
    theirs.load_state_dict(weights_in_transformers(ours))
    ids = torch.randint(V, (B, T))
    with torch.no_grad():
        assert (ours(ids)[0] - theirs(ids).last_hidden_state).abs().max() < 1e-5
