import pytest
import torch
from torch import nn

from retable.nn.attention import padding_mask
from retable.nn.transformer_encoder import EncoderBlock

B, T, D, H = 2, 5, 8, 2


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_the_layer_of_torch(norm):
    torch.manual_seed(0)
    block = EncoderBlock(D, H, 0.0, norm)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs = nn.TransformerEncoderLayer(
        D, H, 4 * D, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=norm == "pre"
    )
    attention = block.attention
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([attention.query.weight, attention.key_value.weight]),
            "self_attn.in_proj_bias": torch.cat([attention.query.bias, attention.key_value.bias]),
            **{f"self_attn.out_proj.{name}": p for name, p in attention.output.named_parameters()},
            **{f"linear1.{name}": p for name, p in block.expand.named_parameters()},
            **{f"linear2.{name}": p for name, p in block.contract.named_parameters()},
            **{f"norm1.{name}": p for name, p in block.attention_norm.named_parameters()},
            **{f"norm2.{name}": p for name, p in block.feed_forward_norm.named_parameters()},
        }
    )
    hidden, mask = torch.randn(B, T, D), padding_mask(torch.tensor([T, 3]), T)
    torch.testing.assert_close(block(hidden), theirs(hidden), atol=1e-5, rtol=1e-5)
    expected = theirs(hidden, src_key_padding_mask=~mask[:, 0, 0])
    torch.testing.assert_close(block(hidden, mask)[0], expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(block(hidden, mask)[1, :3], expected[1, :3], atol=1e-5, rtol=1e-5)
