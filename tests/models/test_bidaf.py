import torch
from torch import Tensor

from retable.models.bidaf import AttentionFlow, BiDAF

WORDS = [f"w{i}" for i in range(9)]
T, J, H = 6, 4, 6
CONTEXT_LENGTHS, QUESTION_LENGTHS = torch.tensor([6, 2, 5]), torch.tensor([1, 4, 3])


def bidaf(dropout: float = 0.0) -> BiDAF:
    torch.manual_seed(0)
    return BiDAF(7, WORDS, 5, 3, [(2, 4)], n_highway=2, d_hidden=H, dropout=dropout)


def ids() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(len(WORDS), (3, length), generator=generator) for length in (T, J))


def test_attention_flow_equals_its_equations():
    """Row by row, without padding, and with the (T, J, 3H) of all pairs written out."""
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


def test_padding_changes_nothing():
    model = bidaf(dropout=0.5).eval()
    context, question = ids()  # random behind the rows' lengths
    padded = model(context, CONTEXT_LENGTHS, question, QUESTION_LENGTHS)
    for row, (t, j) in enumerate(zip(CONTEXT_LENGTHS.tolist(), QUESTION_LENGTHS.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = model(context[one, :t], CONTEXT_LENGTHS[one], question[one, :j], QUESTION_LENGTHS[one])
        for state, its in zip(padded, alone, strict=True):
            torch.testing.assert_close(state[row, :t], its[0])


def test_every_state_depends_on_the_question():
    model, (context, question) = bidaf(), ids()
    changed = question.clone()
    changed[:, 0] = (question[:, 0] + 1) % 7
    states = zip(*(model(context, CONTEXT_LENGTHS, q, QUESTION_LENGTHS) for q in (question, changed)), strict=True)
    inside = torch.arange(T) < CONTEXT_LENGTHS[:, None]
    assert all((one != other).any(dim=2)[inside].all() for one, other in states)


def test_save_and_load_give_the_same(tmp_path):
    model, other = bidaf(), bidaf()
    torch.nn.init.ones_(other.input_embedding.weight)
    torch.save(model.state_dict(), tmp_path / "weights")
    other.load_state_dict(torch.load(tmp_path / "weights"))
    context, question = ids()
    ours, theirs = (m(context, CONTEXT_LENGTHS, question, QUESTION_LENGTHS) for m in (model, other))
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
