import pytest
import torch

from retable.nn.transformer import Block, CausalSelfAttention

B, T, D, H = 2, 5, 8, 4


@pytest.fixture
def attention() -> CausalSelfAttention:
    torch.manual_seed(0)
    return CausalSelfAttention(D, H, dropout=0.5).eval()


def test_attention_equals_a_masked_softmax(attention):
    hidden = torch.randn(B, T, D)
    q, k, v = attention.query_key_value(hidden).split(D, dim=2)
    mixed = torch.empty(B, T, D)
    for head in torch.arange(D).split(D // H):
        scores = q[..., head] @ k[..., head].transpose(1, 2) / (D // H) ** 0.5
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        mixed[..., head] = scores.softmax(dim=2) @ v[..., head]
    torch.testing.assert_close(attention(hidden), attention.output(mixed))


def test_the_first_position_has_only_itself_to_see(attention):
    hidden = torch.randn(B, T, D)
    value = attention.query_key_value(hidden[:, 0])[:, 2 * D :]
    torch.testing.assert_close(attention(hidden)[:, 0], attention.output(value))


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    block, hidden = Block(D, H, dropout=0.5), torch.randn(B, T, D)
    assert not torch.equal(block(hidden), block(hidden))
    block.eval()
    assert torch.equal(block(hidden), block(hidden))


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="d_model=8 must be a multiple of n_heads=3"):
        CausalSelfAttention(D, 3, dropout=0.0)
