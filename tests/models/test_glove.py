import torch

from retable.models.glove import GloVe


def test_starts_as_gloves_code_does():
    torch.manual_seed(0)
    model = GloVe([f"word{i}" for i in range(500)], d_model=20)
    assert model.vectors().shape == (500, 20)
    assert model.word_bias.weight.shape == (500, 1)
    for weight in model.parameters():
        assert 0.45 / 20 < weight.abs().max() <= 0.5 / 20
