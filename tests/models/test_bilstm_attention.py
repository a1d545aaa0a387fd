import pytest
import torch

from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention, attend
from retable.training.weights import load_weights, save_weights

V, E, D = 11, 6, 8
LENGTHS, OTHERS = torch.tensor([5, 1, 7, 3]), torch.tensor([2, 4, 1, 3])  # in no order


def model(seed: int = 0, dropout: float = 0.0) -> BiLSTMAttention:
    torch.manual_seed(seed)
    return BiLSTMAttention(V, E, D, n_layers=1, dropout=dropout)


def pairs() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    ids, others = (torch.randint(V, (4, n), generator=generator) for n in (7, 4))
    return ids, LENGTHS, others, OTHERS


def test_attention_equals_a_loop_over_pairs_of_words():
    generator = torch.Generator().manual_seed(2)
    similarity = torch.randn(4, 5, 4, generator=generator)
    states = torch.randn(4, 4, D, generator=generator)
    found = attend(similarity, states, OTHERS)
    for row, length in enumerate(OTHERS.tolist()):
        for word in range(5):
            weights = [float(similarity[row, word, i].exp()) for i in range(length)]
            expected = sum(w * states[row, i] for i, w in enumerate(weights)) / sum(weights)
            torch.testing.assert_close(found[row, word], expected)


def test_each_sentence_is_read_again_beside_what_it_sees_in_the_other():
    attending = model().eval()
    (row, length, other, other_length) = (part[3:] for part in pairs())
    row, other = row[:, :3], other[:, :3]
    first = BiLSTM(V, E, D, 1).eval()
    first.load_state_dict({k: v for k, v in attending.state_dict().items() if not k.startswith("modelling.")})
    own, its = first(row, length)[0], first(other, other_length)[0]
    for a, b, found in zip((own, its), (its, own), attending.read_pair(row, length, other, other_length), strict=True):
        seen = torch.stack([torch.softmax(torch.stack([word @ w for w in b]), 0) @ b for word in a])
        expected = attending.modelling(torch.cat([a, seen], dim=1)[None], torch.tensor([3]))
        torch.testing.assert_close(found, expected)


def test_the_order_of_a_pair_only_swaps_its_states():
    attending = model().eval()
    ids, lengths, others, other_lengths = pairs()
    one, other = attending.read_pair(ids, lengths, others, other_lengths)
    its, own = attending.read_pair(others, other_lengths, ids, lengths)
    torch.testing.assert_close((one, other), (own, its))


def test_a_word_of_the_other_sentence_changes_the_states_of_this_one():
    attending = model().eval()
    ids, lengths, others, other_lengths = pairs()
    changed = others.clone()
    changed[:, 0] = (others[:, 0] + 1) % V
    before, after = (attending.read_pair(ids, lengths, each, other_lengths)[0] for each in (others, changed))
    for row, length in enumerate(lengths):
        assert (before[row, :length] != after[row, :length]).any(dim=1).all()


def test_padding_changes_nothing():
    attending = model().eval()
    ids, lengths, others, other_lengths = pairs()  # what stands behind a row's length is random here
    padded = attending.read_pair(ids, lengths, others, other_lengths)
    for row in range(4):
        one = ids[row : row + 1, : lengths[row]], lengths[row : row + 1]
        other = others[row : row + 1, : other_lengths[row]], other_lengths[row : row + 1]
        for states, alone, length in zip(
            padded, attending.read_pair(*one, *other), (lengths[row], other_lengths[row]), strict=True
        ):
            torch.testing.assert_close(states[row, :length], alone[0])
            assert not states[row, length:].any()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_every_parameter_gets_a_gradient(dropout):
    attending = model(dropout=dropout)
    one, other = attending.read_pair(*pairs())
    (one.square().sum() + other.square().sum()).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in attending.parameters())


def test_saved_weights_give_the_same_states(tmp_path):
    attending, other = model().eval(), model(seed=1).eval()
    save_weights(attending, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    assert all(map(torch.equal, attending.read_pair(*pairs()), other.read_pair(*pairs())))
