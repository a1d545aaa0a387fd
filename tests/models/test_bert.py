import numpy as np
import pytest
import torch
from torch import Tensor, nn

from retable.exchange.families import weights_in_transformers
from retable.models.bert import BERT
from tests.nn import by_hand

V, D, L, H, B, T = 23, 16, 3, 4, 3, 9
VARIANTS: dict[str, dict] = {
    "bert": {},
    "pre_norm": {"norm": "pre"},
    "narrow": {"d_embedding": 8},
    "without_pooler": {"pooler": False},
    "rotary": {"positions": "rotary"},
    "rotary, pre_norm": {"positions": "rotary", "norm": "pre"},
}
LENGTHS = torch.tensor([T, 4, 1])


def build(variant: str = "bert", **settings) -> BERT:
    torch.manual_seed(0)
    model = BERT(V, D, L, H, T, dropout=0.1, **VARIANTS[variant], **settings).eval()
    for name, parameter in model.named_parameters():  # far from the start, where attention is flat and norms are idle
        nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    return model


@pytest.fixture(params=VARIANTS)
def model(request) -> BERT:
    return build(request.param)


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(V, (B, T), generator=generator), torch.randint(2, (B, T), generator=generator)


def test_equals_bert_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=4 * D,
        max_position_embeddings=T,
    )  # fmt: skip
    ours, theirs = build(), transformers.BertModel(config).eval()
    assert not theirs.load_state_dict(weights_in_transformers(ours), strict=False).unexpected_keys
    ids, segments = inputs()
    real = torch.arange(T) < LENGTHS[:, None]
    with torch.no_grad():
        states = ours.layers(ids, LENGTHS, segments)
        expected = theirs(ids, real.long(), segments, output_hidden_states=True)
        assert len(states) == len(expected.hidden_states) == L + 1
        for state, its in zip(states, expected.hidden_states, strict=True):
            assert (state - its)[real].abs().max() < 1e-5
        assert (ours.pool(states[-1]) - expected.pooler_output).abs().max() < 1e-5
        assert torch.equal(ours(ids, LENGTHS, segments), states[-1])


def test_full_rows_need_no_lengths(model):
    ids, _ = inputs()
    with torch.no_grad():
        assert torch.equal(model(ids, torch.full((B,), T)), model(ids))


def test_the_summary_is_that_of_all_states(model):
    """Though of the last layer it is the first state alone that is computed."""
    input_ids, segments = inputs()
    widths = []
    hook = model.blocks[-1].expand.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape[1]))
    found = model.summary(input_ids, LENGTHS, segments)
    hook.remove()
    torch.testing.assert_close(found, model.pool(model(input_ids, LENGTHS, segments)), atol=1e-5, rtol=1e-5)
    assert widths == [1]


@pytest.mark.parametrize("variant", ["rotary", "rotary, pre_norm"])
def test_with_rotary_positions_distances_alone_count(variant):
    """A sequence has the same states wherever it stands between what nobody looks at, and others if it is turned."""
    model, hidden, width = build(variant), torch.randn(B, T, D), T - 3
    text, rest = hidden[:, :width], hidden[:, width:]
    with torch.no_grad():
        found = []
        for before in range(4):
            states = torch.cat([rest[:, :before], text, rest[:, before:]], dim=1)
            place = torch.arange(T)
            seen = (place >= before) & (place < before + width)
            for block in model.blocks:
                states = block(states, seen[None, None, None], model.rotations)
            found.append(states[:, before : before + width])
        for each in found:
            torch.testing.assert_close(each, found[0], atol=1e-4, rtol=1e-4)
        ids, _ = inputs()
        assert not torch.allclose(model(ids.flip(1)).flip(1), model(ids), atol=1e-2)


def test_rotary_positions_are_no_weights():
    names = {name for name, _ in build("rotary").named_parameters()}
    assert set(build("rotary").state_dict()) == names == {n for n in build().state_dict() if "positions" not in n}


def test_rotary_positions_turn_queries_and_keys():
    """One query and one head at a time, without the padding."""
    model = build("rotary")
    attention, hidden = model.blocks[0].attention, torch.randn(B, T, D)
    seen = (torch.arange(T) < LENGTHS[:, None])[:, None, None]
    found = attention(hidden, mask=seen, rotation=model.rotations).detach().numpy()
    p = by_hand.arrays(attention)
    for row, length in enumerate(LENGTHS.tolist()):
        x = hidden[row, :length].double().numpy()
        query = x @ p["query.weight"].T + p["query.bias"]
        key, value = np.split(x @ p["key_value.weight"].T + p["key_value.bias"], 2, axis=1)
        for t in range(length):
            mixed = []
            for head in np.split(np.arange(D), H):
                keys = [by_hand.turned(k, s) for s, k in enumerate(key[:, head])]
                of_query = by_hand.turned(query[t, head], t)
                mixed.append(by_hand.attention(of_query, keys, [*value[:, head]], (D // H) ** -0.5))
            expected = p["output.weight"] @ np.concatenate(mixed) + p["output.bias"]
            np.testing.assert_allclose(found[row, t], expected, atol=1e-4)


def test_without_a_pooler_the_first_state_is_the_summary():
    model, hidden = build("without_pooler"), torch.randn(B, T, D)
    assert torch.equal(model.pool(hidden), hidden[:, 0])
    assert not any("pooler" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("settings", [{}, {"initializer_range": 0.05}])
def test_initialisation(settings):
    torch.manual_seed(0)
    std = settings.get("initializer_range", 0.02)
    for name, parameter in BERT(200, 64, 2, 2, max_length=64, dropout=0.0, norm="pre", **settings).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert parameter.abs().max() <= 2 * std and abs(parameter.mean()) < std / 4, name
            assert parameter.std().item() == pytest.approx(0.88 * std, rel=0.1), name  # cut off at two deviations


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norms_have_the_epsilon_of_berts_code(norm):
    model = BERT(20, 16, 2, 2, max_length=8, dropout=0.0, norm=norm)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert {each.eps for each in norms} == {1e-12} and len(norms) == 5 + (norm == "pre")


def test_positions_that_begin_as_sinusoids_tell_distances():
    """The product of two of them depends on how far apart they are, and they vary as much as other weights."""
    torch.manual_seed(0)
    places = BERT(20, 64, 1, 2, max_length=50, dropout=0.0, sinusoids=True).positions.weight.detach()
    products = places @ places.mT
    for distance in (0, 1, 7):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert places.square().mean().sqrt().item() == pytest.approx(0.02)


def test_the_published_sizes_have_the_published_numbers_of_parameters():
    for d, layers, heads, published in ((768, 12, 12, 110e6), (1024, 24, 16, 340e6)):
        with torch.device("meta"):
            size = sum(p.numel() for p in BERT(30_522, d, layers, heads, 512, 0.1).parameters())
        assert size == pytest.approx(published, rel=0.02)


def test_the_pooler_is_left_and_nothing_else():
    sizes = {"vocab_size": 11, "d_model": 8, "n_layers": 1, "n_heads": 2, "max_length": 6, "dropout": 0.0}
    model = BERT(**sizes)
    model.leave_pooler()
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"pooler.weight", "pooler.bias"}
    without = BERT(**sizes, pooler=False)
    without.leave_pooler()
    assert all(p.requires_grad for p in without.parameters())
