import numpy as np
import pytest
import torch

from retable.models.rnn_encoder_decoder import RNNEncoderDecoder, reverse
from tests.contracts.model_cases import IDS, LENGTHS, OTHERS, RNNS, D, V
from tests.nn.by_hand import arrays, cell, softmax

VARIANTS = [*RNNS.values(), {"attention": "additive", "reading": "reversed"}, {"attention": "none"}]


def step_by_step(model: RNNEncoderDecoder, source: list[int], target: list[int], variant: dict):
    """Return hidden states (U, D) and alignments (U, S) of one pair in float64, computed by cell, state and score."""
    settings = {"cell": "lstm", "reading": "both", "input_feeding": False, "n_layers": 1} | variant
    p, kind = arrays(model), settings["cell"]

    def zeros(width):
        return (np.zeros(width),) * (2 if kind == "lstm" else 1)

    both, table = settings["reading"] == "both", p["embedding.weight"]
    order = source[::-1] if settings["reading"] == "reversed" else source
    layer, starts = [table[token] for token in order], []
    for number in range(settings["n_layers"]):
        passes = []
        for suffix in (f"l{number}", f"l{number}_reverse")[: 2 if both else 1]:
            state, outputs = zeros(D // 2 if both else D), []
            for x in layer[::-1] if suffix.endswith("reverse") else layer:
                state = cell(kind, p, x, state, "encoder.", suffix)
                outputs.append(state[0])
            passes.append((outputs[::-1] if suffix.endswith("reverse") else outputs, state))
        layer = [np.concatenate(parts) for parts in zip(*(outputs for outputs, _ in passes), strict=True)]
        starts.append(tuple(np.concatenate(parts) for parts in zip(*(state for _, state in passes), strict=True)))
    memory = layer[::-1] if settings["reading"] == "reversed" else layer

    states, fed, hidden, alignments = starts, np.zeros(D), [], []
    for token in target:
        x = np.concatenate([table[token], fed]) if settings["input_feeding"] else table[token]
        for number in range(settings["n_layers"]):
            states[number] = cell(kind, p, x, states[number], "decoder.", f"l{number}")
            x = states[number][0]
        if settings["attention"] != "none":
            if settings["attention"] == "bilinear":
                scores = [x @ p["attention.weight.weight"] @ h for h in memory]
            else:
                query = p["attention.query.weight"] @ x + p["attention.memory.bias"]
                inner = [np.tanh(query + p["attention.memory.weight"] @ h) for h in memory]
                scores = [p["attention.score.weight"][0] @ each for each in inner]
            shares = softmax(np.array(scores))
            x = np.tanh(p["combine.weight"] @ np.concatenate([shares @ np.stack(memory), x]))
            alignments.append(shares)
        fed = x
        hidden.append(x)
    return np.stack(hidden), np.array(alignments)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_equals_a_forward_pass_written_step_by_step(variant):
    torch.manual_seed(0)
    model = RNNEncoderDecoder(V, 4, D, **{"n_layers": 1, "dropout": 0.1} | variant).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    assert "attention.score.bias" not in model.state_dict()  # a bias would be the same for all states
    hidden = model(IDS, LENGTHS, OTHERS).detach()
    for b, n in enumerate(LENGTHS.tolist()):
        expected, shares = step_by_step(model, IDS[b, :n].tolist(), OTHERS[b].tolist(), variant)
        np.testing.assert_allclose(hidden[b], expected, atol=1e-5)
        if len(shares):
            found = model.align(IDS[b : b + 1, :n], LENGTHS[b : b + 1], OTHERS[b : b + 1])[0]
            np.testing.assert_allclose(found.detach(), shares, atol=1e-5)


def test_reverse_turns_the_tokens_and_leaves_the_padding():
    ids, lengths = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0], [1, 2, 3, 4, 0]]), torch.tensor([5, 2, 4])
    assert reverse(ids, lengths).tolist() == [[5, 4, 3, 2, 1], [7, 6, 0, 0, 0], [4, 3, 2, 1, 0]]
    assert torch.equal(reverse(reverse(ids[..., None], lengths), lengths)[..., 0], ids)
