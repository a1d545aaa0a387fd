import torch

from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention, attend

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
