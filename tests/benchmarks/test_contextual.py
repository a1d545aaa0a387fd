"""Test that both sides of the pretraining benchmark do the same work: with the same weights they have the same loss."""

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

from benchmarks import contextual
from benchmarks.contextual import PREDICTED_NOWHERE, SYSTEMS, Padded, Sizes, Text
from retable.data.masking import MaskedBatch
from retable.exchange.families import generator_of, weights_in_transformers

TINY = Sizes(vocab_size=60, d_model=16, n_layers=2, batch_size=4, length=24)


def of_electra(ours) -> dict[str, Tensor]:
    parts = {"generator": generator_of(ours), "discriminator": ours}
    return {f"{side}.{name}": p for side, part in parts.items() for name, p in weights_in_transformers(part).items()}


def both(name: str):
    """Return our side and the peer's with the same weights, which are much larger than initial weights."""
    build_ours, peers = SYSTEMS[name]
    ours, theirs = build_ours(TINY), peers["transformers"](TINY)
    torch.manual_seed(0)
    for parameter in ours.module.parameters():
        nn.init.normal_(parameter, std=0.3)
    weights = of_electra(ours.module) if name == "ELECTRA" else weights_in_transformers(ours.module)
    keys, state = theirs.module.load_state_dict(weights, strict=False), theirs.module.state_dict()
    loaded = {state[key].data_ptr() for key in weights}
    assert not keys.unexpected_keys and {state[key].data_ptr() for key in keys.missing_keys} <= loaded  # tied
    assert sum(p.numel() for p in ours.module.parameters()) == sum(p.numel() for p in theirs.module.parameters())
    return ours, theirs


@pytest.mark.parametrize("name", ["BERT, same rows", "T5", "ELECTRA"])
def test_the_same_rows_give_the_same_loss_and_gradients(name):
    ours, theirs = both(name)
    assert ours.tokens == theirs.tokens
    for step in range(2):
        losses = [side.loss(step) for side in (ours, theirs)]
        torch.testing.assert_close(*losses, atol=1e-4, rtol=1e-5)
    norms = []
    for side, loss in zip((ours, theirs), losses, strict=True):
        loss.backward()
        norms.append(nn.utils.get_total_norm([p.grad for p in side.module.parameters() if p.grad is not None]))
    torch.testing.assert_close(*norms, atol=1e-4, rtol=1e-4)


def test_padded_rows_give_the_same_loss_without_their_padding():
    ours, theirs = both("BERT")
    batch = Padded(Text(TINY.vocab_size), TINY).batch(0)
    ids, labels, lengths = batch["input_ids"].flatten(), batch["labels"].flatten(), batch["attention_mask"].sum(1)
    assert lengths.min() < lengths.max() == batch["input_ids"].shape[1]
    places = (labels != PREDICTED_NOWHERE).nonzero()[:, 0]
    assert not (ids[labels == PREDICTED_NOWHERE] == contextual.MARKS.index("[MASK]")).any()
    shape = batch["input_ids"]
    draws = torch.zeros(len(places))
    given = MaskedBatch(shape, torch.zeros_like(shape), lengths, places, labels[places], None, draws, 1.0, 1.0)
    torch.testing.assert_close(ours.module.loss(given, None, 0)[0], theirs.module(**batch).loss, atol=1e-4, rtol=1e-5)
