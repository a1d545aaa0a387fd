import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.context_encoder_decoder import ContextEncoderDecoder
from tests.contracts.model_cases import IDS, LENGTHS, OTHERS, B, T, V
from tests.nn.by_hand import arrays, cell, softmax

H = 3


def build(attention: bool, **settings) -> ContextEncoderDecoder:
    torch.manual_seed(0)
    model = ContextEncoderDecoder(V, 4, H, 0.5, attention, **settings).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model


def step_by_step(model: ContextEncoderDecoder, source: list[int], target: list[int]):
    """Hidden states (U, D) and alignments (U, S) of one pair in float64, a step at a time."""
    p, attends = arrays(model), model.aligns
    words, passes = [p.get("source_embedding.weight", p["embedding.weight"])[token] for token in source], []
    for suffix in ("l0", "l0_reverse")[: 1 + attends]:
        state, outputs = (np.zeros(H),), []
        for x in words[::-1] if suffix.endswith("reverse") else words:
            state = cell("gru", p, x, state, "encoder.", suffix)
            outputs.append(state[0])
        passes.append((outputs[::-1] if suffix.endswith("reverse") else outputs, state[0]))
    final = np.concatenate([end for _, end in passes])
    memory = [np.concatenate(parts) for parts in zip(*(outputs for outputs, _ in passes), strict=True)]
    state = np.tanh(p["enter.weight"] @ final + p["enter.bias"]) if attends else final
    hidden, alignments = [], []
    for token in target:
        e, context = p["embedding.weight"][token], final
        if attends:
            query = p["attention.query.weight"] @ state + p["attention.memory.bias"]
            inner = [np.tanh(query + p["attention.memory.weight"] @ h) for h in memory]
            shares = softmax(np.array([p["attention.score.weight"][0] @ each for each in inner]))
            context = shares @ np.stack(memory)
            alignments.append(shares)
        (state,) = cell("gru", p, np.concatenate([e, context]), (state,), "decoder.")
        hidden.append(np.concatenate([state, context, e]))
    return np.stack(hidden), np.array(alignments)


@pytest.mark.parametrize("settings", [{}, {"source_vocab_size": V}], ids=["shared", "separate"])
@pytest.mark.parametrize("attention", [False, True])
def test_equals_a_forward_pass_written_step_by_step(attention, settings):
    model = build(attention, **settings)
    hidden = model(IDS, LENGTHS, OTHERS).detach()
    for b, n in enumerate(LENGTHS.tolist()):
        expected, shares = step_by_step(model, IDS[b, :n].tolist(), OTHERS[b].tolist())
        np.testing.assert_allclose(hidden[b], expected, atol=1e-5)
        if attention:
            found = model.align(IDS[b : b + 1, :n], LENGTHS[b : b + 1], OTHERS[b : b + 1])[0]
            np.testing.assert_allclose(found.detach(), shares, atol=1e-5)


@pytest.mark.parametrize("attention", [False, True])
def test_the_context_changes_every_step(attention):
    model, changed = build(attention), IDS.clone()
    changed[:, 0] = (changed[:, 0] + 1) % V
    moved = (model(changed, LENGTHS, OTHERS) - model(IDS, LENGTHS, OTHERS)).abs()
    context = moved[:, :, H : H + (2 if attention else 1) * H]
    assert (context.amax(dim=2) > 1e-6).all()
    assert moved[:, :, context.shape[2] + H :].max() == 0  # the target's embeddings


@pytest.mark.parametrize("attention", [False, True])
def test_without_packing_padding_is_read_as_words(attention):
    whole = torch.full_like(LENGTHS, T)
    reads, stops = build(attention, packed=False), build(attention)
    torch.testing.assert_close(reads(IDS, LENGTHS, OTHERS), stops(IDS, whole, OTHERS))
    assert not torch.allclose(reads(IDS, LENGTHS, OTHERS), stops(IDS, LENGTHS, OTHERS))
    if attention:
        assert (reads.align(IDS, LENGTHS, OTHERS) > 0).all() and len(IDS) == B


def test_weights_start_with_the_given_deviation():
    torch.manual_seed(0)
    for init_biases in (False, True):
        model = ContextEncoderDecoder(500, 40, 40, 0.5, True, init_std=0.01, init_biases=init_biases)
        for name, parameter in model.named_parameters():
            std = 0.0 if "bias" in name and not init_biases else 0.01
            assert parameter.std().item() == pytest.approx(std, rel=0.3), name


def test_without_attention_there_are_no_weights_to_align():
    with pytest.raises(UsageError, match=r"model\.attention=true"):
        build(False).align(IDS, LENGTHS, OTHERS)
