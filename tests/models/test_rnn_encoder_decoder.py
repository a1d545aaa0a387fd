import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder, reverse

V, D, B, S, U = 13, 6, 3, 5, 4
LENGTHS = torch.tensor([5, 2, 4])
VARIANTS: dict[str, dict] = {
    "none": {"attention": "none"},
    "sutskever": {"attention": "none", "reading": "reversed", "n_layers": 2},
    "bilinear": {"attention": "bilinear", "n_layers": 2},
    "bilinear_fed": {"attention": "bilinear", "input_feeding": True},
    "additive": {"attention": "additive", "cell": "gru", "n_layers": 2},
    "additive_fed": {"attention": "additive", "cell": "gru", "input_feeding": True},
    "forward": {"attention": "bilinear", "reading": "forward"},
    "reversed": {"attention": "additive", "reading": "reversed"},
}


def build(variant: str, dropout: float = 0.1) -> RNNEncoderDecoder:
    torch.manual_seed(0)
    model = RNNEncoderDecoder(V, 4, D, **({"n_layers": 1, "dropout": dropout} | VARIANTS[variant])).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    return request.param


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randint(1, V, (B, S)), LENGTHS, torch.randint(1, V, (B, U))


def step_by_step(model: RNNEncoderDecoder, source: list[int], target: list[int], variant: str):
    """Hidden states (U, D) and alignments (U, S) of one pair in float64: a cell, a state, a score at a time."""
    settings = {"cell": "lstm", "reading": "both", "input_feeding": False, "n_layers": 1} | VARIANTS[variant]
    p = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def cell(x, state, name, suffix):
        h = state[0]
        ih = p[f"{name}.weight_ih_{suffix}"] @ x + p[f"{name}.bias_ih_{suffix}"]
        hh = p[f"{name}.weight_hh_{suffix}"] @ h + p[f"{name}.bias_hh_{suffix}"]
        if settings["cell"] == "gru":
            (ri, zi, ni), (rh, zh, nh) = np.split(ih, 3), np.split(hh, 3)
            z = sigmoid(zi + zh)
            return ((1 - z) * np.tanh(ni + sigmoid(ri + rh) * nh) + z * h,)
        i, f, g, o = np.split(ih + hh, 4)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def zeros(width):
        return (np.zeros(width),) * (2 if settings["cell"] == "lstm" else 1)

    both, table = settings["reading"] == "both", p["embedding.weight"]
    order = source[::-1] if settings["reading"] == "reversed" else source
    layer, starts = [table[token] for token in order], []
    for number in range(settings["n_layers"]):
        passes = []
        for suffix in (f"l{number}", f"l{number}_reverse")[: 2 if both else 1]:
            state, outputs = zeros(D // 2 if both else D), []
            for x in layer[::-1] if suffix.endswith("reverse") else layer:
                state = cell(x, state, "encoder", suffix)
                outputs.append(state[0])
            passes.append((outputs[::-1] if suffix.endswith("reverse") else outputs, state))
        layer = [np.concatenate(parts) for parts in zip(*(outputs for outputs, _ in passes), strict=True)]
        starts.append(tuple(np.concatenate(parts) for parts in zip(*(state for _, state in passes), strict=True)))
    memory = layer[::-1] if settings["reading"] == "reversed" else layer

    states, fed, hidden, alignments = starts, np.zeros(D), [], []
    for token in target:
        x = np.concatenate([table[token], fed]) if settings["input_feeding"] else table[token]
        for number in range(settings["n_layers"]):
            states[number] = cell(x, states[number], "decoder", f"l{number}")
            x = states[number][0]
        if settings["attention"] != "none":
            if settings["attention"] == "bilinear":
                scores = [x @ p["attention.weight.weight"] @ h for h in memory]
            else:
                query = p["attention.query.weight"] @ x + p["attention.memory.bias"]
                inner = [np.tanh(query + p["attention.memory.weight"] @ h) for h in memory]
                scores = [p["attention.score.weight"][0] @ each for each in inner]
            shares = np.exp(scores) / np.exp(scores).sum()
            x = np.tanh(p["combine.weight"] @ np.concatenate([shares @ np.stack(memory), x]))
            alignments.append(shares)
        fed = x
        hidden.append(x)
    return np.stack(hidden), np.array(alignments)


def test_equals_a_forward_pass_written_step_by_step(variant):
    model, (sources, lengths, targets) = build(variant), inputs()
    hidden = model(sources, lengths, targets).detach()
    for b, n in enumerate(lengths.tolist()):
        expected, shares = step_by_step(model, sources[b, :n].tolist(), targets[b].tolist(), variant)
        np.testing.assert_allclose(hidden[b], expected, atol=1e-5)
        if len(shares):
            found = model.align(sources[b : b + 1, :n], lengths[b : b + 1], targets[b : b + 1])[0]
            np.testing.assert_allclose(found.detach(), shares, atol=1e-5)


def test_padding_changes_nothing(variant):
    model, (sources, lengths, targets) = build(variant), inputs()
    hidden = model(sources, lengths, targets)
    other = sources.clone()
    other[torch.arange(S) >= lengths[:, None]] = 7
    torch.testing.assert_close(model(torch.cat([other, other], dim=1), lengths, targets), hidden)
    for b, n in enumerate(lengths.tolist()):
        alone = model(sources[b : b + 1, :n], lengths[b : b + 1], targets[b : b + 1])
        torch.testing.assert_close(alone[0], hidden[b])


def test_later_tokens_of_the_target_do_not_show(variant):
    model, (sources, lengths, targets) = build(variant), inputs()
    hidden = model(sources, lengths, targets)
    for u in range(U):
        changed = targets.clone()
        changed[:, u:] = changed[:, u:] % (V - 1) + 1
        other = model(sources, lengths, changed)
        torch.testing.assert_close(other[:, :u], hidden[:, :u])
        assert (other[:, u:] - hidden[:, u:]).abs().amax(dim=2).min() > 1e-5


@pytest.mark.parametrize("pieces", [[1] * U, [3, 1]], ids=str)
def test_going_on_from_a_state_equals_all_at_once(variant, pieces):
    model, (sources, lengths, targets) = build(variant), inputs()
    state, parts = model.encode(sources, lengths), []
    for piece in targets.split(pieces, dim=1):
        hidden, state = model.decode(piece, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(sources, lengths, targets))


def test_every_source_token_shows_in_the_first_step(variant):
    model, (sources, lengths, targets) = build(variant), inputs()
    first = model(sources, lengths, targets)[:, 0]
    for s in range(S):
        changed = sources.clone()
        changed[:, s] = changed[:, s] % (V - 1) + 1
        moved = (model(changed, lengths, targets)[:, 0] - first).abs().amax(dim=1)
        assert (moved[s < lengths] > 1e-7).all() and (moved[s >= lengths] < 1e-7).all()


def test_every_parameter_gets_a_gradient(variant):
    model = build(variant).train()
    model(*inputs()).square().sum().backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in model.named_parameters()}
    assert all(reached.values()), reached


def test_only_parameters_need_saving(variant):
    model, other = build(variant), RNNEncoderDecoder(V, 4, D, **({"n_layers": 1, "dropout": 0} | VARIANTS[variant]))
    with torch.no_grad():
        for mine, its in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(its)
    assert torch.equal(other.eval()(*inputs()), model(*inputs()))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_reverse_turns_the_tokens_and_leaves_the_padding():
    ids = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0], [1, 2, 3, 4, 0]])
    assert reverse(ids, LENGTHS).tolist() == [[5, 4, 3, 2, 1], [7, 6, 0, 0, 0], [4, 3, 2, 1, 0]]
    assert torch.equal(reverse(reverse(ids[..., None], LENGTHS), LENGTHS)[..., 0], ids)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cell": "rnn"}, "no cell=rnn; write one of lstm, gru"),
        ({"reading": "backward"}, "no reading=backward; write one of both, forward, reversed"),
        ({"attention": "dot"}, "no attention=dot; write one of none, bilinear, additive"),
        ({"input_feeding": True}, "nothing to feed; write model.input_feeding=false"),
        ({"d_model": 5}, "d_model=5 does not divide into two directions"),
    ],
)
def test_an_impossible_setting_is_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        RNNEncoderDecoder(
            **({"vocab_size": V, "d_embedding": 4, "d_model": D, "n_layers": 1, "dropout": 0.0} | setting)
        )


def test_words_start_with_the_variance_of_one_over_their_width(recwarn):
    torch.manual_seed(0)
    model = RNNEncoderDecoder(300, 100, D, n_layers=1, dropout=0.5)
    assert model.embedding.weight.detach().std() == pytest.approx(0.1, rel=0.02)
    assert model.encoder.dropout == model.decoder.dropout == 0 and not recwarn.list  # none between layers of one


def test_nothing_to_align_without_attention():
    with pytest.raises(UsageError, match="attention=none aligns nothing"):
        build("none").align(*inputs())
