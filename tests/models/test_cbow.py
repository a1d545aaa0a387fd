import torch

from retable.models.cbow import CBOW

WORDS = [f"word{i}" for i in range(50)]


def test_the_mean_of_a_window_predicts_its_centre():
    torch.manual_seed(0)
    model = CBOW(WORDS, d_model=6)
    centres, contexts = torch.randint(50, (3, 4)), torch.randint(50, (3, 7))
    pairs = torch.rand(3, 4, 7) < 0.4
    pairs[1, 2] = False  # an empty window
    hidden, targets, which = model(centres, contexts, pairs)
    assert targets.equal(centres)
    for r in range(3):
        for i in range(4):
            window = contexts[r, pairs[r, i]]
            if len(window):
                torch.testing.assert_close(hidden[r, i], model.vectors()[window].mean(0))
            assert which[r, i].tolist() == [len(window) > 0 and j == i for j in range(4)]
    assert which.sum() < 12
