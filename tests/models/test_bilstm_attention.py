import torch

from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import attend
from tests.contracts.model_cases import IDS, OTHER_LENGTHS, OTHERS, B, D, E, U, V, build


def test_attention_equals_a_loop_over_pairs_of_words():
    generator = torch.Generator().manual_seed(2)
    similarity, states = (torch.randn(B, U, n, generator=generator) for n in (U, D))
    found = attend(similarity, states, OTHER_LENGTHS)
    for row, length in enumerate(OTHER_LENGTHS.tolist()):
        for word in range(U):
            weights = [float(similarity[row, word, i].exp()) for i in range(length)]
            expected = sum(w * states[row, i] for i, w in enumerate(weights)) / sum(weights)
            torch.testing.assert_close(found[row, word], expected)


def test_each_sentence_is_read_again_beside_what_it_sees_in_the_other():
    attending, first = build("bilstm with attention"), BiLSTM(V, E, D, 1).eval()
    first.load_state_dict({k: v for k, v in attending.state_dict().items() if not k.startswith("modelling.")})
    pair = IDS[3:, :3], torch.tensor([3]), OTHERS[3:, :4], torch.tensor([4])
    own, its = first(*pair[:2])[0], first(*pair[2:])[0]
    for a, b, found in zip((own, its), (its, own), attending.read_pair(*pair), strict=True):
        seen = torch.stack([torch.softmax(torch.stack([word @ w for w in b]), 0) @ b for word in a])
        expected = attending.modelling(torch.cat([a, seen], dim=1)[None], torch.tensor([len(a)]))
        torch.testing.assert_close(found, expected)
