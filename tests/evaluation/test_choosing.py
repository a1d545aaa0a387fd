import numpy as np
import pytest
import torch
from torch import nn

from retable.data.choices import Choices
from retable.data.examples import Inputs
from retable.evaluation.choosing import choice_accuracy, predict_choices


class Highest(nn.Module):
    """Chooses the ending with the highest last token."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def predict(self, batch):
        last = batch.rows.input_ids.gather(1, batch.rows.lengths[:, None] - 1)[:, 0]
        return torch.stack([scores.argmax() for scores in last.split(batch.n_endings.tolist())])


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_each_example_gets_its_own_prediction(batch_size):
    generator = np.random.default_rng(0)
    best, n_endings, rows = [], generator.integers(2, 6, size=9), []
    for n in n_endings:
        last = generator.permutation(n)
        best.append(int(last.argmax()))
        rows += [[7] * int(generator.integers(9)) + [int(token)] for token in last]
    found = predict_choices(Highest(), Choices(Inputs(rows), n_endings, best), batch_size)
    assert found.tolist() == best and found.dtype == np.int64


def test_accuracy():
    assert choice_accuracy([0, 1, 2, 3], np.array([0, 1, 2, 0])) == 0.75
