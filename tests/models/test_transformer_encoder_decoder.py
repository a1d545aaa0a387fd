import pytest
import torch
from torch import nn

from tests.contracts.model_cases import IDS, LENGTHS, OTHERS, D, F, H, T, U, build
from tests.nn.by_hand import sinusoids


@pytest.mark.filterwarnings("ignore:.*nested.tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_the_transformer_of_torch(norm):
    ours = build("transformer" if norm == "post" else "transformer, pre-norm")
    theirs = nn.Transformer(D, H, 2, 2, F, batch_first=True, norm_first=norm == "pre").eval()
    if norm == "post":  # the final norms repeat a normalisation
        theirs.encoder.norm = theirs.decoder.norm = None
    names = {"self_attention": "self_attn", "attention": "self_attn", "cross_attention": "multihead_attn"}
    p = dict(ours.named_parameters())
    weights = {}
    for stack, links in (
        ("encoder", ["attention_link", "feed_forward_link"]),
        ("decoder", ["self_attention_link", "cross_attention_link", "feed_forward_link"]),
    ):
        for layer in range(2):
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

    wave = torch.from_numpy(sinusoids(T, D)).float()
    table, padding = ours.embedding.weight, torch.arange(T) >= LENGTHS[:, None]
    with torch.no_grad():
        expected = theirs(
            table[IDS] * D**0.5 + wave, table[OTHERS] * D**0.5 + wave[:U],
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(U), src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip
        assert (ours(IDS, LENGTHS, OTHERS) - expected).abs().max() < 1e-5
