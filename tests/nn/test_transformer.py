import pytest
import torch

from retable.nn import transformer
from retable.nn.transformer import Block, Cache, Swish

B, T, D, H = 2, 5, 8, 4


def test_whatever_comes_of_a_cache_leaves_it_as_it_is(monkeypatch):
    """Caches are extended at random from one another, and compared with tensors that are copied each time."""
    monkeypatch.setattr(transformer, "ROOM", 3)
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(B, H, 0, D)
    caches, copies = [Cache.empty(keys)], [torch.stack([keys, keys])]
    for t in range(60):
        of = int(torch.randint(len(caches), (), generator=generator)) if t % 3 else -1
        cache, copy = caches[of], copies[of]
        if t % 5 == 4:
            rows = torch.randint(copy.shape[1], (3,), generator=generator)
            caches.append(cache.select(rows))
            copies.append(copy[:, rows])
        else:
            new = torch.randn(2, copy.shape[1], H, 1 + t % 2, D, generator=generator)
            caches.append(cache.extended(*new))
            copies.append(torch.cat([copy, new], dim=3))
    assert all(torch.equal(cache.tensor, copy) for cache, copy in zip(caches, copies, strict=True))
    assert [cache.length for cache in caches] == [copy.shape[3] for copy in copies]


def test_a_cache_goes_on_in_the_memory_that_it_has():
    keys = torch.randn(B, H, 1, D)
    first = Cache.empty(keys).extended(keys, keys)
    longer = [first]
    for _ in range(transformer.ROOM - 1):
        longer.append(longer[-1].extended(keys, keys))
    assert len({cache.tensor.data_ptr() for cache in longer}) == 1
    assert longer[-1].extended(keys, keys).tensor.data_ptr() != first.tensor.data_ptr()
    assert first.extended(keys, keys).tensor.data_ptr() != first.tensor.data_ptr()  # its free memory is in use


def test_rows_that_are_alike_at_first_change_places_in_memory():
    keys = torch.randn(3, H, 5, D)
    keys[:, :, :2] = keys[:1, :, :2]
    cache, rows = Cache.empty(keys).extended(keys, -keys), torch.tensor([2, 2, 0])
    memory, expected = cache.tensor.data_ptr(), cache.tensor[:, rows]
    chosen = cache.select(rows, last=3)
    assert torch.equal(chosen.tensor, expected) and chosen.tensor.data_ptr() == memory
    chosen.extended(keys, keys)  # takes the free memory, so that the next one copies
    again = chosen.select(rows, last=9)
    assert torch.equal(again.tensor, expected[:, rows]) and again.tensor.data_ptr() != memory
    with pytest.raises(RuntimeError):
        cache.extended(keys, keys)


@pytest.mark.parametrize("layer", ["attention.output", "contract"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_each_layer_is_dropped_out_before_its_residual_link(norm, layer):
    torch.manual_seed(0)
    block, hidden = Block(D, H, dropout=0.5, norm=norm), torch.randn(B, T, D)
    if norm == "post":  # norm after the sum would hide what is added
        block.attention_norm = block.feed_forward_norm = torch.nn.Identity()
    for output in (block.attention.output, block.contract):
        torch.nn.init.zeros_(output.weight)
        torch.nn.init.zeros_(output.bias)
    torch.nn.init.ones_(block.get_submodule(layer).bias)  # this layer returns ones, and the other layer zeros
    added = (block(hidden)[0] - hidden).round(decimals=4)
    assert set(added.flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0, -2.0])
def test_swish_and_its_slopes(beta):
    """Ramachandran et al. (2017): f = x σ(βx) has derivatives βf + σ(βx) (1 − βf) by x, and f (x − f) by β."""
    swish, x = Swish(), torch.linspace(-4, 4, 33, requires_grad=True)
    torch.nn.init.constant_(swish.beta, beta)
    gate = 1 / (1 + torch.exp(-beta * x.detach()))
    f = x.detach() * gate
    out = swish(x)
    torch.testing.assert_close(out, f)
    out.sum().backward()
    torch.testing.assert_close(x.grad, beta * f + gate * (1 - beta * f))
    torch.testing.assert_close(swish.beta.grad, (f * (x.detach() - f)).sum()[None])


def test_swish_begins_as_the_silu_and_each_block_has_its_own():
    x = torch.linspace(-4, 4, 33)
    torch.testing.assert_close(Swish()(x), torch.nn.functional.silu(x))
    first, second = (Block(D, H, 0.0, activation="swish") for _ in range(2))
    assert first.activation.beta is not second.activation.beta
