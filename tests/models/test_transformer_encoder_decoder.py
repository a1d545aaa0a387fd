import numpy as np
import pytest
import torch
from torch import nn

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
