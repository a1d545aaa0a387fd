import numpy as np
import pytest
import torch
from torch import nn

from retable.core.errors import UsageError
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder

V, D, L, H, F, B, S, U, LONG = 13, 8, 2, 2, 12, 3, 5, 4, 12
LENGTHS = torch.tensor([5, 2, 4])


def build(norm: str) -> TransformerEncoderDecoder:
    torch.manual_seed(0)
    model = TransformerEncoderDecoder(V, D, L, H, F, LONG, dropout=0.1, norm=norm).eval()
    for parameter in model.parameters():  # far from the start, where attention is flat and norms are idle
        nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(params=["post", "pre"])
def model(request) -> TransformerEncoderDecoder:
    return build(request.param)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randint(1, V, (B, S)), LENGTHS, torch.randint(1, V, (B, U))


@pytest.mark.filterwarnings("ignore:.*nested.tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_the_transformer_of_torch(norm):
    ours, (sources, lengths, targets) = build(norm), inputs()
    theirs = nn.Transformer(D, H, L, L, F, batch_first=True, norm_first=norm == "pre").eval()
    if norm == "post":  # they normalise once more what is normalised already
        theirs.encoder.norm = theirs.decoder.norm = None
    names = {"self_attention": "self_attn", "attention": "self_attn", "cross_attention": "multihead_attn"}
    p = dict(ours.named_parameters())
    weights = {}
    for stack, links in (
        ("encoder", ["attention_link", "feed_forward_link"]),
        ("decoder", ["self_attention_link", "cross_attention_link", "feed_forward_link"]),
    ):
        for layer in range(L):
            mine, its = f"{stack}.{layer}", f"{stack}.layers.{layer}"
            for i, link in enumerate(links, 1):
                attention = link.removesuffix("_link")
                for kind in ("weight", "bias"):
                    weights[f"{its}.norm{i}.{kind}"] = p[f"{mine}.{link}.norm.{kind}"]
                    if attention in names:
                        parts = [p[f"{mine}.{attention}.{part}.{kind}"] for part in ("query", "key_value")]
                        weights[f"{its}.{names[attention]}.in_proj_{kind}"] = torch.cat(parts)
                        weights[f"{its}.{names[attention]}.out_proj.{kind}"] = p[f"{mine}.{attention}.output.{kind}"]
            for i, place in ((1, 0), (2, 2)):
                for kind in ("weight", "bias"):
                    weights[f"{its}.linear{i}.{kind}"] = p[f"{mine}.feed_forward.{place}.{kind}"]
        if norm == "pre":
            for kind in ("weight", "bias"):
                weights[f"{stack}.norm.{kind}"] = p[f"{stack}_norm.{kind}"]
    theirs.load_state_dict(weights)

    wave = np.array([[(np.sin, np.cos)[i % 2](t / 10000 ** (i // 2 * 2 / D)) for i in range(D)] for t in range(LONG)])
    wave = torch.from_numpy(wave).float()
    table = ours.embedding.weight
    padding = torch.arange(S) >= lengths[:, None]
    with torch.no_grad():
        expected = theirs(
            table[sources] * D**0.5 + wave[:S],
            table[targets] * D**0.5 + wave[:U],
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(U),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        assert (ours(sources, lengths, targets) - expected).abs().max() < 1e-5


def test_padding_changes_nothing(model):
    sources, lengths, targets = inputs()
    hidden = model(sources, lengths, targets)
    other = sources.clone()
    other[torch.arange(S) >= lengths[:, None]] = 7
    torch.testing.assert_close(model(torch.cat([other, other], dim=1), lengths, targets), hidden)
    for b, n in enumerate(lengths.tolist()):
        alone = model(sources[b : b + 1, :n], lengths[b : b + 1], targets[b : b + 1])
        torch.testing.assert_close(alone[0], hidden[b], atol=1e-5, rtol=1e-5)


def test_later_tokens_of_the_target_do_not_show(model):
    sources, lengths, targets = inputs()
    hidden = model(sources, lengths, targets)
    for u in range(U):
        changed = targets.clone()
        changed[:, u:] = changed[:, u:] % (V - 1) + 1
        other = model(sources, lengths, changed)
        torch.testing.assert_close(other[:, :u], hidden[:, :u])
        assert (other[:, u:] - hidden[:, u:]).abs().amax(dim=2).min() > 1e-4


@pytest.mark.parametrize("pieces", [[1] * U, [3, 1], [1, 3]], ids=str)
def test_going_on_from_a_state_equals_all_at_once(model, pieces):
    sources, lengths, targets = inputs()
    state, parts = model.encode(sources, lengths), []
    for piece in targets.split(pieces, dim=1):
        hidden, state = model.decode(piece, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(sources, lengths, targets), atol=1e-5, rtol=1e-5)
    assert [past.tensor.shape for past in state[0]] == [(2, B, H, U, D // H)] * L


def test_every_source_token_shows_in_every_step(model):
    sources, lengths, targets = inputs()
    hidden = model(sources, lengths, targets)
    for s in range(S):
        changed = sources.clone()
        changed[:, s] = changed[:, s] % (V - 1) + 1
        moved = (model(changed, lengths, targets) - hidden).abs().amax(dim=2)
        assert (moved[s < lengths] > 1e-5).all() and not moved[s >= lengths].any()


def test_every_parameter_gets_a_gradient(model):
    model.train()(*inputs()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


def test_only_parameters_need_saving(model):
    torch.manual_seed(1)
    other = TransformerEncoderDecoder(
        V, D, L, H, F, LONG, 0.0, "pre" if model.encoder[0].attention_link.pre else "post"
    )
    with torch.no_grad():
        for mine, its in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(its)
    assert torch.equal(other.eval()(*inputs()), model(*inputs()))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_initialisation():
    torch.manual_seed(0)
    for name, parameter in TransformerEncoderDecoder(500, 64, 2, 2, 96, 10, 0.0).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            std = 64**-0.5 if "embedding" in name else (2 / sum(parameter.shape)) ** 0.5
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name


def test_too_long_a_sequence_is_refused(model):
    ids, lengths = torch.ones(1, LONG + 1, dtype=torch.long), torch.tensor([LONG + 1])
    with pytest.raises(UsageError, match=rf"{LONG + 1} tokens.*max_length={LONG}"):
        model.encode(ids, lengths)
    state = model.encode(ids[:, :1], lengths - LONG)
    _, state = model.decode(ids[:, :LONG], state)
    with pytest.raises(UsageError, match=rf"{LONG + 1} tokens.*max_length={LONG}"):
        model.decode(ids[:, :1], state)


def test_an_unknown_norm_is_refused():
    with pytest.raises(UsageError, match="no norm=both; write post or pre"):
        TransformerEncoderDecoder(V, D, L, H, F, LONG, 0.0, norm="both")
