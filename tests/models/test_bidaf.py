from functools import partial

import pytest
import torch
from torch import Tensor

from retable.models.bidaf import AttentionFlow, BiDAF, Matches
from retable.models.elmo import ELMo

WORDS = [f"w{i}" for i in range(7)] + ["W2", "W7"]
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.5, filters=[(1, 3), (2, 4)], d_character=3, n_highway=1)
KINDS = {
    "bidaf": {},
    "bidaf_matched": {"folds_case": True, "matches": True},
    "bidaf_elmo": {"folds_case": True, "matches": True, "elmo": ELMO},
}
T, J, H = 6, 4, 6
CONTEXT_LENGTHS, QUESTION_LENGTHS = torch.tensor([6, 2, 5]), torch.tensor([1, 4, 3])


def bidaf(kind: str = "bidaf") -> BiDAF:
    torch.manual_seed(0)
    return BiDAF(7, WORDS, 5, 3, [(2, 4)], n_highway=2, d_hidden=H, dropout=0.0, **KINDS[kind])


def ids() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(len(WORDS), (3, length), generator=generator) for length in (T, J))


def test_attention_flow_equals_its_equations():
    """Compared with a computation row by row, without padding, that keeps all pairs of words (T, J, 3H)."""
    torch.manual_seed(0)
    flow, context, question = AttentionFlow(H), torch.randn(3, T, H), torch.randn(3, J, H)
    output = flow(context, question, CONTEXT_LENGTHS, QUESTION_LENGTHS)
    for row, (t, j) in enumerate(zip(CONTEXT_LENGTHS.tolist(), QUESTION_LENGTHS.tolist(), strict=True)):
        h, u = context[row, :t], question[row, :j]
        pairs = torch.cat([h[:, None].expand(t, j, H), u.expand(t, j, H), h[:, None] * u], dim=2)
        S = flow.similarity(pairs)[:, :, 0]
        asked = torch.stack([sum(S[i].softmax(0)[k] * u[k] for k in range(j)) for i in range(t)])
        b = torch.stack([S[i].max() for i in range(t)]).softmax(0)
        salient = sum(b[i] * h[i] for i in range(t))
        expected = torch.stack([torch.cat([h[i], asked[i], h[i] * asked[i], h[i] * salient]) for i in range(t)])
        torch.testing.assert_close(output[row, :t], expected)


def test_states_are_g_beside_m_and_beside_m2():
    model = bidaf()
    kept: dict[str, Tensor] = {}
    for name in ("attention", "modelling", "end"):
        getattr(model, name).register_forward_hook(lambda _, __, output, name=name: kept.update({name: output}))
    (context, question) = ids()
    start, end = model(context, CONTEXT_LENGTHS, question, QUESTION_LENGTHS)
    assert start.shape == end.shape == (3, T, model.d_model) and model.d_model == 5 * H
    assert torch.equal(start, torch.cat([kept["attention"], kept["modelling"]], dim=2))
    assert torch.equal(end, torch.cat([kept["attention"], kept["end"]], dim=2))
    torch.testing.assert_close(kept["end"], model.end(kept["modelling"], CONTEXT_LENGTHS))


def test_matches_are_words_of_the_other_text_as_written_and_in_any_case():
    """Compared pair by pair, with the letters of words; after the end of a row, ids are random."""
    context, question = ids()
    found = Matches(WORDS)(context, question, QUESTION_LENGTHS)
    for row, length in enumerate(QUESTION_LENGTHS.tolist()):
        others = [WORDS[i] for i in question[row, :length].tolist()]
        for place, i in enumerate(context[row].tolist()):
            exact, any_case = WORDS[i] in others, WORDS[i].lower() in [other.lower() for other in others]
            assert found[row, place].tolist() == [exact, any_case]
    other = Matches(["a", "A", "b"])(torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2]]), torch.tensor([1]))
    assert other[0].tolist() == [[0, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_other_text_has_reaches_the_contextual_layer_last(kind):
    """The input of the contextual layer is [x; ELMo(x); matches]; x is the output of the highway network."""
    given, kept = bidaf(kind=kind).eval(), []
    given.contextual.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    context, question = ids()
    given(context, CONTEXT_LENGTHS, question, QUESTION_LENGTHS)
    for read, own, lengths, other, others in (
        (kept[0], context, CONTEXT_LENGTHS, question, QUESTION_LENGTHS),
        (kept[1], question, QUESTION_LENGTHS, context, CONTEXT_LENGTHS),
    ):
        parts = [given.highway(given.input(own))]
        if given.elmo is not None:
            parts.append(given.mix(given.elmo.layers(own, lengths), lengths))
        if given.matches is not None:
            parts.append(given.matches(own, other, others))
        torch.testing.assert_close(read, torch.cat(parts, dim=2))
