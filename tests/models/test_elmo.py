import numpy as np
import pytest
import torch

from retable.models.elmo import ELMo
from tests.contracts.model_cases import ELMO, IDS, LENGTHS, WORDS, B, build, models
from tests.nn.by_hand import arrays, cell

KINDS = pytest.mark.parametrize("name", ["elmo", "elmo, of words"])


def by_loop(stack: torch.nn.Module, vectors: np.ndarray, state=None) -> tuple[list[np.ndarray], list]:
    """Run a stack of LSTMs with projection over vectors (T, D), cell by cell.

    Return the outputs of each layer (T, D), and h and c of each layer at the end.
    """
    outputs, ends = [], []
    for i, lstm in enumerate(stack.layers):
        p = arrays(lstm)
        before = (np.zeros(vectors.shape[1]), np.zeros(len(p["bias_ih_l0"]) // 4)) if state is None else state[i]
        hidden = []
        for x in vectors:
            before = cell("lstm", p, x, before)
            hidden.append(before[0] + x if i else before[0])  # a residual connection, from the second layer on
        ends.append(before)
        vectors = np.stack(hidden)
        outputs.append(vectors)
    return outputs, ends


def vectors_of(model: ELMo, row: torch.Tensor) -> np.ndarray:
    return model.embed(row[None])[0].detach().double().numpy()


@pytest.mark.parametrize("name", ["elmo", "elmo, of words", "without projection"])
def test_layers_equal_two_plain_loops_over_time(name):
    model = models.ELMo(WORDS, 4, 4, 3, 0.0, None) if name == "without projection" else build(name)
    found = model.layers(IDS, LENGTHS)
    assert len(found) == len(model.forward_stack.layers) + 1
    for row, length in enumerate(LENGTHS.tolist()):
        x = vectors_of(model, IDS[row, :length])
        forward, _ = by_loop(model.forward_stack, x)
        backward, _ = by_loop(model.backward_stack, x[::-1])
        expected = [np.hstack([x, x]), *(np.hstack([f, b[::-1]]) for f, b in zip(forward, backward, strict=True))]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[row, :length].detach(), theirs, atol=1e-5)


@KINDS
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_direction_equals_a_plain_loop_that_goes_on_from_its_state(name, backward):
    model, state, ends = build(name), None, [None] * B
    stack = model.backward_stack if backward else model.forward_stack
    for window in IDS.split([3, 1, 3], dim=1):
        hidden, state = model(window, state, backward)
        for row in range(B):
            expected, ends[row] = by_loop(stack, vectors_of(model, window[row]), ends[row])
            np.testing.assert_allclose(hidden[row].detach(), expected[-1], atol=1e-5)
            for layer, (h, c) in enumerate(ends[row]):
                np.testing.assert_allclose(state[0][layer, row].detach(), h, atol=1e-5)
                np.testing.assert_allclose(state[1][layer, row].detach(), c, atol=1e-5)


def test_words_of_the_vocabulary_have_the_layers_of_their_ids():
    model, rows = build("elmo"), [row[:length].tolist() for row, length in zip(IDS, LENGTHS, strict=True)]
    by_spelling = model.layers_of_words([[WORDS[i] for i in row] for row in rows])
    for ours, theirs in zip(by_spelling, model.layers(IDS, LENGTHS), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_unseen_words_have_vectors_of_their_spelling_alone():
    model, other = build("elmo"), ELMO(["<unk>", "a", "antidisestablishmentarianism"], dropout=0.0).eval()
    other.load_state_dict(model.state_dict())
    (vector, *_) = model.layers_of_words([["catty"]])
    assert torch.isfinite(vector).all() and vector.shape == (1, 1, 8)
    beside = model.layers_of_words([["the", "catty"], ["x" * 60]])
    torch.testing.assert_close(beside[0][0, 1], vector[0, 0])
    torch.testing.assert_close(other.layers_of_words([["catty"]])[0], vector)
    assert not torch.allclose(model.layers_of_words([["cattx"]])[0], vector)
