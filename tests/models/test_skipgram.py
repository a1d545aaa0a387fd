import torch

from retable.models.skipgram import SkipGram

WORDS = [f"word{i}" for i in range(500)]


def test_a_centre_predicts_its_contexts():
    model = SkipGram(WORDS, d_model=20)
    centres, contexts, pairs = torch.tensor([[3, 4]]), torch.tensor([[7, 3, 4]]), torch.rand(1, 2, 3) < 0.5
    hidden, targets, which = model(centres, contexts, pairs)
    assert hidden.equal(model.vectors()[centres])
    assert targets.equal(contexts)
    assert which.equal(pairs)
